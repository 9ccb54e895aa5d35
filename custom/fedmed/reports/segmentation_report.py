"""What a report shows of masks: a score for each case, and axial slices with the contours of truth and prediction."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contourpy import contour_generator
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmed.errors import DataError
from fedmed.reports.palette import INK, PREDICTION, PREDICTION_INK, TRUTH, TRUTH_INK, png_address
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import number, read_arrays
from fedmed.reports.scored_report import ScoredReport
from fedmed.reports.site_rows import SiteRow
from fedmed.reports.words import fixed

SCALE_BAR = 50.0  # mm
KEYS = ("image", "truth", "prediction", "spacing", "dice", "case")


@dataclass(frozen=True)
class SlicePicture:
    """One axial slice: image (H, W) float in 0..1, masks (H, W) bool, spacing (row, column) in mm."""

    kind: str
    case: str
    dice: float | None
    image: np.ndarray
    truth: np.ndarray
    prediction: np.ndarray
    spacing: tuple[float, float]


def read_slice(path: Path, kind: str) -> SlicePicture:
    """Read ``best.npz`` and the like; DataError for a damaged file or masks of another shape."""
    image, truth, prediction, spacing, dice, case = read_arrays(path, KEYS)
    if image.ndim != 2 or truth.shape != image.shape or prediction.shape != image.shape:
        raise DataError(f"{path}: image, truth and prediction are not of one 2D shape; evaluate the site again")
    image = np.nan_to_num(image.astype(np.float64)).clip(0, 1)
    millimetres = (float(spacing[0]), float(spacing[1]))
    return SlicePicture(kind, str(case), number(float(dice)), image, truth > 0, prediction > 0, millimetres)


class SegmentationReport(ScoredReport):
    """A run with a score of each case, such as Dice."""

    template = "segmentation.html.j2"

    def cells(self, run: Run, row: SiteRow) -> dict[str, str]:
        """Mean and spread over a site's cases."""
        return {run.score.label: fixed(row.mean), "± std": fixed(row.std)}

    def values(self, run: Run) -> dict[str, Any]:
        """With the slices of each site."""
        found = [(site, [(p, Markup(svg(p))) for p in site.pictures(read_slice)]) for site in run.sites]
        return super().values(run) | {"pictures": found}

    def figure(self, site: Site) -> Figure | None:
        """The pictures of a site side by side, for a PNG; None where there are none."""
        pictures = list(site.pictures(read_slice))
        if not pictures:
            return None
        tallest = max(height / width for width, height in map(extent, pictures))
        drawing = Figure(figsize=(3.4 * len(pictures), 3.3 * tallest + 0.8), layout="constrained")
        drawing.suptitle(site.name, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
        for axes, picture in zip(np.atleast_1d(drawing.subplots(1, len(pictures))), pictures, strict=True):
            _draw(axes, picture)
        look: dict[str, Any] = {"xycoords": "figure fraction", "textcoords": "offset points", "ha": "right"}
        for name, left, colour in (("truth", -78, TRUTH_INK), ("prediction", -8, PREDICTION_INK)):
            axes.annotate(name, (1, 1), (left, -6), color=colour, fontsize=9.5, va="top", **look).set_in_layout(False)
        return drawing


def contours(mask: np.ndarray, spacing: tuple[float, float]) -> list[np.ndarray]:
    """Outlines of a mask.

    Args:
        mask: (H, W) bool.
        spacing: (row, column) in mm.

    Returns:
        Closed lines of shape (N, 2), (x, y) in mm from the picture's upper left corner. The mask is padded, so that a
        region at the border is closed too.
    """
    if not mask.any():
        return []
    lines = contour_generator(z=np.pad(mask.astype(np.float64), 1)).lines(0.5)
    # Pixel (0, 0) covers 0..1, so its centre is at 0.5; padding moved it by one.
    return [(np.asarray(line) - 0.5) * np.array([spacing[1], spacing[0]]) for line in lines]


def extent(picture: SlicePicture) -> tuple[float, float]:
    """(width, height) in mm."""
    rows, columns = picture.image.shape
    return columns * picture.spacing[1], rows * picture.spacing[0]


def svg(picture: SlicePicture) -> str:
    """One picture as inline SVG: an 8-bit PNG below, vector contours and a scale bar above."""
    width, height = extent(picture)
    paths = ""
    for name, mask in (("truth", picture.truth), ("prediction", picture.prediction)):
        lines = ["L".join(f"{x:.1f} {y:.1f}" for x, y in line[:-1]) for line in contours(mask, picture.spacing)]
        paths += f'<path class="{name}" d="{"".join(f"M{line}Z" for line in lines)}"/>' if lines else ""
    bar = min(SCALE_BAR, width / 2)
    left, bottom = width * 0.04, height * 0.955
    scale = f'<path class="scale" d="M{left:.1f} {bottom:.1f}h{bar:.1f}"/>'
    return (
        f'<svg class="slice" viewBox="0 0 {width:.1f} {height:.1f}" role="img" aria-label="{picture.kind} case">'
        f'<image href="{png_address(picture.image)}" width="{width:.1f}" height="{height:.1f}" '
        f'preserveAspectRatio="none"/><g class="marks">{paths}{scale}</g></svg>'
    )


def _draw(axes: Axes, picture: SlicePicture) -> None:
    width, height = extent(picture)
    axes.imshow(picture.image, cmap="gray", vmin=0, vmax=1, extent=(0, width, height, 0), interpolation="bilinear")
    for mask, colour, dashes in ((picture.truth, TRUTH, "-"), (picture.prediction, PREDICTION, (0, (3, 1.2)))):
        for x, y in (line.T for line in contours(mask, picture.spacing)):
            axes.plot(x, y, color=colour, linestyle=dashes, linewidth=1.3)
    dice = "" if picture.dice is None else f", Dice {picture.dice:.2f}"
    axes.set_title(f"{picture.kind}{dice}", fontsize=9.5)
    axes.set_axis_off()
