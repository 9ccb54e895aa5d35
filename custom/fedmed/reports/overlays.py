"""Axial slices with the contours of truth and prediction."""

import base64
from io import BytesIO

import numpy as np
from contourpy import contour_generator
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from fedmed.reports.palette import INK, PREDICTION, PREDICTION_INK, TRUTH, TRUTH_INK
from fedmed.reports.run import Site
from fedmed.reports.run_files import SlicePicture, read_picture

SCALE_BAR = 50.0  # mm


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
    paths = "".join(
        f'<path class="{name}" d="{_path(contours(mask, picture.spacing))}"/>'
        for name, mask in (("truth", picture.truth), ("prediction", picture.prediction))
        if mask.any()
    )
    bar = min(SCALE_BAR, width / 2)
    left, bottom = width * 0.04, height * 0.955
    scale = f'<path class="scale" d="M{left:.1f} {bottom:.1f}h{bar:.1f}"/>'
    return (
        f'<svg class="slice" viewBox="0 0 {width:.1f} {height:.1f}" role="img" aria-label="{picture.kind} case">'
        f'<image href="data:image/png;base64,{_encoded(picture.image)}" width="{width:.1f}" height="{height:.1f}" '
        f'preserveAspectRatio="none"/><g class="marks">{paths}{scale}</g></svg>'
    )


def _path(lines: list[np.ndarray]) -> str:
    return "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in line[:-1]) + "Z" for line in lines)


def _encoded(image: np.ndarray) -> str:
    buffer = BytesIO()
    Image.fromarray((image * 255).round().astype(np.uint8), "L").save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def figure(site: Site) -> Figure | None:
    """The pictures of a site side by side, for a PNG; None where there are none."""
    pictures = list(site.pictures(read_picture))
    if not pictures:
        return None
    tallest = max(height / width for width, height in map(extent, pictures))
    drawing = Figure(figsize=(3.4 * len(pictures), 3.3 * tallest + 0.8), layout="constrained")
    drawing.suptitle(site.name, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
    for axes, picture in zip(np.atleast_1d(drawing.subplots(1, len(pictures))), pictures, strict=True):
        _draw(axes, picture)
    last = {"xycoords": "figure fraction", "textcoords": "offset points", "ha": "right", "va": "top", "fontsize": 9.5}
    axes.annotate("truth", (1, 1), (-78, -6), color=TRUTH_INK, **last).set_in_layout(False)
    axes.annotate("prediction", (1, 1), (-8, -6), color=PREDICTION_INK, **last).set_in_layout(False)
    return drawing


def _draw(axes: Axes, picture: SlicePicture) -> None:
    width, height = extent(picture)
    axes.imshow(picture.image, cmap="gray", vmin=0, vmax=1, extent=(0, width, height, 0), interpolation="bilinear")
    for mask, colour, dashes in ((picture.truth, TRUTH, "-"), (picture.prediction, PREDICTION, (0, (3, 1.2)))):
        for line in contours(mask, picture.spacing):
            axes.plot(line[:, 0], line[:, 1], color=colour, linestyle=dashes, linewidth=1.3)
    dice = "" if picture.dice is None else f", Dice {picture.dice:.2f}"
    axes.set_title(f"{picture.kind}{dice}", fontsize=9.5)
    axes.set_axis_off()
