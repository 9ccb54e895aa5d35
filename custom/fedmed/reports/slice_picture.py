"""One axial slice of a case with the contours of truth and prediction, for a page and for a PNG."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contourpy import contour_generator
from markupsafe import escape
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patheffects import withStroke

from fedmed.data.structure import Structure
from fedmed.errors import DataError
from fedmed.reports.palette import EDGE, PAPER, PREDICTION, TRUTH, png_address
from fedmed.reports.run_files import number, read_arrays

SCALE_BAR = 50.0  # mm
ALIKE = 0.35  # distance of two colours in RGB, 0…1 each, below which thin lines in them look the same
KEYS = ("image", "truth", "prediction", "spacing", "dice", "case")
LATER = ("millilitres", "window")  # which evaluations of an earlier FedMed did not write
Pair = tuple[float | None, float | None]


@dataclass(frozen=True)
class SlicePicture:
    """One axial slice, the patient's right on the left: image (H, W) float in 0..1, masks (H, W) bool, spacing (row,
    column) in mm.

    ``millilitres`` of truth and prediction in the whole volume, and ``window``, the HU that are black and white, are
    None where they are not known.
    """

    kind: str
    case: str
    dice: float | None
    image: np.ndarray
    truth: np.ndarray
    prediction: np.ndarray
    spacing: tuple[float, float]
    millilitres: Pair = (None, None)
    window: Pair = (None, None)

    def volumes(self, structure: Structure) -> list[tuple[str, str]]:
        """``truth`` and ``prediction`` with their volumes, as far as they are known."""
        named = zip(("truth", "prediction"), self.millilitres, strict=True)
        return [(name, f"{name} {structure.amount(volume)}") for name, volume in named if volume is not None]

    @property
    def range(self) -> str:
        """``−1000…0 HU``; empty where it is not known."""
        low, high = self.window
        return "" if low is None or high is None else f"{low:g}…{high:g} HU".replace("-", "−")


def read_slice(path: Path, kind: str) -> SlicePicture:
    """Read ``best.npz`` and the like; DataError for a damaged file or masks of another shape."""
    image, truth, prediction, spacing, dice, case, *later = read_arrays(path, KEYS, LATER)
    if image.ndim != 2 or truth.shape != image.shape or prediction.shape != image.shape:
        raise DataError(f"{path}: image, truth and prediction are not of one 2D shape; evaluate the site again")
    image = np.nan_to_num(image.astype(np.float64)).clip(0, 1)
    millimetres = (float(spacing[0]), float(spacing[1]))
    pairs = [(number(float(pair[0])), number(float(pair[1]))) for pair in later]
    return SlicePicture(kind, str(case), number(float(dice)), image, truth > 0, prediction > 0, millimetres, *pairs)


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


def svg_path(mask: np.ndarray, spacing: tuple[float, float]) -> str:
    """The ``d`` of an SVG path of what :func:`contours` returns; empty without any."""
    lines = ("L".join(f"{x:.1f} {y:.1f}" for x, y in line[:-1]) for line in contours(mask, spacing))
    return "".join(f"M{line}Z" for line in lines)


def outline(structure: Structure) -> str:
    """Colour of a prediction: the structure's own, unless it could be taken for the truth's."""
    if structure.colour is None:
        return PREDICTION
    apart = np.linalg.norm(np.subtract(to_rgb(structure.colour), to_rgb(TRUTH)))
    return structure.colour if apart > ALIKE else PREDICTION


def extent(picture: SlicePicture) -> tuple[float, float]:
    """(width, height) in mm."""
    rows, columns = picture.image.shape
    return columns * picture.spacing[1], rows * picture.spacing[0]


def svg(picture: SlicePicture, structure: Structure) -> str:
    """One picture as inline SVG: an 8-bit PNG below; contours, sides, window, volumes and a scale bar above."""
    width, height = extent(picture)
    casings, paths = "", ""  # a dark line below each: on bright tissue the coloured one alone vanishes
    for name, mask in (("truth", picture.truth), ("prediction", picture.prediction)):
        drawn = svg_path(mask, picture.spacing)
        casings += f'<path class="casing" d="{drawn}"/>' if drawn else ""
        paths += f'<path class="{name}" d="{drawn}"/>' if drawn else ""
    bar = min(SCALE_BAR, width / 2)
    left, bottom = width * 0.04, height * 0.955
    scale = f'<path class="scale" d="M{left:.1f} {bottom:.1f}h{bar:.1f}"/>'
    return (
        f'<svg class="slice" viewBox="0 0 {width:.1f} {height:.1f}" role="img" aria-label="{picture.kind} case">'
        f'<image href="{png_address(picture.image)}" width="{width:.1f}" height="{height:.1f}" '
        f'preserveAspectRatio="none"/><g class="marks">{casings}{paths}{scale}</g>'
        f"{''.join(_words(picture, structure))}</svg>"
    )


def _words(picture: SlicePicture, structure: Structure) -> Iterator[str]:
    """Texts of a picture: the patient's sides, volumes at the top, the window at the foot."""
    width, height = extent(picture)
    size = width * 0.045

    def word(text: str, x: float, y: float, anchor: str, kind: str = "") -> str:
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:.1f}"'
        return f'<text class="word{kind}" {place}>{escape(text)}</text>'

    yield word("R", 0.5 * size, 0.5 * height, "start")
    yield word("L", width - 0.5 * size, 0.5 * height, "end")
    yield word(picture.range, width - 0.5 * size, height - 0.6 * size, "end")
    for line, (kind, text) in enumerate(picture.volumes(structure)):
        yield word(text, 0.5 * size, (1.4 + 1.3 * line) * size, "start", f" of-{kind}")


def draw(axes: Axes, picture: SlicePicture, structure: Structure) -> None:
    """The same with Matplotlib."""
    width, height = extent(picture)
    axes.imshow(picture.image, cmap="gray", vmin=0, vmax=1, extent=(0, width, height, 0), interpolation="bilinear")
    drawn = ((picture.truth, TRUTH, "-"), (picture.prediction, outline(structure), (0, (3, 1.2))))
    for mask, colour, dashes in drawn:
        for x, y in (line.T for line in contours(mask, picture.spacing)):
            axes.plot(x, y, color=colour, linestyle=dashes, linewidth=1.3, path_effects=EDGE)
    look: dict[str, Any] = {"color": PAPER, "fontsize": 8, "transform": axes.transAxes}
    look |= {"path_effects": [withStroke(linewidth=2, foreground="black")]}
    volumes = "\n".join(text for _, text in picture.volumes(structure))
    axes.text(0.02, 0.5, "R", ha="left", va="center", **look)
    axes.text(0.98, 0.5, "L", ha="right", va="center", **look)
    axes.text(0.98, 0.02, picture.range, ha="right", va="bottom", **look)
    axes.text(0.02, 0.98, volumes, ha="left", va="top", **look)
    dice = "" if picture.dice is None else f", Dice {picture.dice:.2f}"
    axes.set_title(f"{picture.kind}{dice}", fontsize=9.5)
    axes.set_axis_off()
