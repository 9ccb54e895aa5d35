"""A case in three planes and in 3D: axial, coronal and sagittal slices through its largest lesion, and its lungs.

As a radiologist sees it: the patient's right is on the left, the sagittal slice looks to the left. All at one scale.
"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from scipy import ndimage

from fedmed.reports.dark_picture import EDGE, NIGHT
from fedmed.reports.palette import INK_DARK, PREDICTION, TRUTH
from fedmed.reports.slice_picture import SCALE_BAR, contours
from fedmed.reports.surface import Viewpoint, find_lungs, render
from fedmed.reports.viewed_case import ViewedCase

WINDOW = (-1350.0, 150.0)  # HU: the lung window
WORDS: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 9}
WORDS |= {"color": INK_DARK, "path_effects": EDGE}
FRONT = Viewpoint()
MARKS = {"axial": tuple("RLAP"), "coronal": tuple("RLHF"), "sagittal": tuple("APHF")}  # left, right, top, bottom


def focus(case: ViewedCase) -> tuple[int, int, int]:
    """Voxel (x, y, z) whose three slices show most of the largest lesion: of the truth if there is one, else of the
    prediction; the middle of the volume where nothing is marked."""
    masks = [mask for mask in (case.truth, case.prediction) if mask is not None and mask.any()]
    if not masks:
        x, y, z = (n // 2 for n in case.image.shape)
        return x, y, z
    parts, _ = ndimage.label(masks[0])
    largest = parts == 1 + np.argmax(np.bincount(parts.ravel())[1:])
    x, y, z = (int(np.argmax(largest.sum(axis=others))) for others in ((1, 2), (0, 2), (0, 1)))
    return x, y, z


def cut(volume: np.ndarray, plane: str, at: tuple[int, int, int]) -> np.ndarray:
    """One slice (rows from the top, columns from the left) of a volume with axes towards right, front, head."""
    x, y, z = at
    slices = {"axial": volume[::-1, ::-1, z], "coronal": volume[::-1, y, ::-1], "sagittal": volume[x, ::-1, ::-1]}
    return slices[plane].T


def pixel_size(case: ViewedCase, plane: str) -> tuple[float, float]:
    """(row, column) spacing of a slice in mm."""
    x, y, z = case.spacing
    return {"axial": (y, x), "coronal": (z, x), "sagittal": (z, y)}[plane]


def draw_plane(axes: Axes, case: ViewedCase, plane: str, at: tuple[int, int, int]) -> None:
    """Draw one slice in mm: the prediction filled, the truth as an outline."""
    image, size = cut(case.image, plane, at), pixel_size(case, plane)
    height, width = image.shape[0] * size[0], image.shape[1] * size[1]
    frame = (0, width, height, 0)
    axes.imshow(image, cmap="gray", vmin=WINDOW[0], vmax=WINDOW[1], extent=frame, interpolation="bilinear")
    _outline(axes, cut(case.prediction, plane, at), size, PREDICTION, 0.28)
    if case.truth is not None:
        _outline(axes, cut(case.truth, plane, at), size, TRUTH, 0.0)
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_aspect("equal")
    axes.set_axis_off()
    left, right, top, bottom = MARKS[plane]
    for letter, x, y in ((left, 0, 0.5), (right, 1, 0.5), (top, 0.5, 1), (bottom, 0.5, 0)):
        inwards = (10 * (1 - 2 * x), 10 * (1 - 2 * y))
        axes.annotate(letter, (x, y), inwards, ha="center", va="center", **WORDS)
    axes.annotate(plane, (0, 1), (6, -5), va="top", **WORDS)


def _outline(axes: Axes, mask: np.ndarray, size: tuple[float, float], colour: str, fill: float) -> None:
    if fill and mask.any():
        height, width = mask.shape[0] * size[0], mask.shape[1] * size[1]
        paint = np.zeros((*mask.shape, 4))
        paint[..., :3], paint[..., 3] = to_rgb(colour), fill * mask
        axes.imshow(paint, extent=(0, width, height, 0), interpolation="nearest")
    for line in contours(mask, size):
        axes.plot(*line.T, color=colour, linewidth=1.2, path_effects=EDGE)


def draw_lungs(axes: Axes, case: ViewedCase, view: Viewpoint) -> None:
    """Draw the lungs in 3D with the prediction inside, and what of the truth the prediction missed."""
    lesions, lungs = [(case.prediction, PREDICTION)], find_lungs(case.image, case.spacing) | case.prediction
    if case.truth is not None:
        lesions.append((case.truth & ~case.prediction, TRUTH))
        lungs |= case.truth
    axes.imshow(render(lungs, lesions, case.spacing, view), interpolation="bilinear")
    axes.set_axis_off()


def case_figure(case: ViewedCase, view: Viewpoint = FRONT, title: str | None = None) -> Figure:
    """Axial slice and 3D view above, coronal and sagittal slice below, all slices at one scale.

    Args:
        case: what to show.
        view: of the 3D picture.
        title: above it; None is the case's name.
    """
    x, y, z = (n * s for n, s in zip(case.image.shape, case.spacing, strict=True))
    scale = 7.6 / (y + max(x, z))  # inches a mm
    gap, head = 0.06, 0.42  # inches between the pictures and above them
    width, height = (x + y) * scale + gap, (y + z) * scale + gap + head
    figure, at = Figure(figsize=(width, height), facecolor=NIGHT), focus(case)
    edges = {"left": 0, "right": 1, "bottom": 0, "top": 1 - head / height}
    spaces = {"wspace": 2 * gap / (x + y) / scale, "hspace": 2 * gap / (y + z) / scale}  # of the pictures' mean size
    ratios: dict[str, Any] = {"width_ratios": (x, y), "height_ratios": (y, z)}
    panels = figure.subplots(2, 2, gridspec_kw=edges | spaces, **ratios)
    for plane, axes in (("axial", panels[0, 0]), ("coronal", panels[1, 0]), ("sagittal", panels[1, 1])):
        draw_plane(axes, case, plane, at)
    draw_lungs(panels[0, 1], case, view)
    _scale_bar(figure.axes[0])
    _heading(figure, case, title or case.name, 1 - 0.5 * head / height)
    return figure


def _scale_bar(axes: Axes) -> None:
    right, bottom = axes.get_xlim()[1] - 8, axes.get_ylim()[0] - 8
    axes.plot([right - SCALE_BAR, right], [bottom] * 2, color=INK_DARK, linewidth=2, path_effects=EDGE)
    words: dict[str, Any] = {"ha": "center", "va": "bottom", "path_effects": EDGE}
    axes.text(right - SCALE_BAR / 2, bottom - 4, "5 cm", color=INK_DARK, fontsize=8, **words)


def _heading(figure: Figure, case: ViewedCase, title: str, y: float) -> None:
    figure.text(0.012, y, title, color=INK_DARK, fontsize=11, fontweight="bold", va="center")
    found = [(f"prediction {case.millilitres(case.prediction):.0f} ml", PREDICTION)]
    if case.truth is not None:
        found.append((f"truth {case.millilitres(case.truth):.0f} ml", TRUTH))
    if (dice := case.dice()) is not None:
        found.append((f"Dice {dice:.2f}", INK_DARK))
    for place, (words, colour) in enumerate(reversed(found)):
        figure.text(0.988 - 0.17 * place, y, words, color=colour, fontsize=10, ha="right", va="center")
