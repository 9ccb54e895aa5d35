"""A case in three planes and in 3D: axial, coronal and sagittal slices through its largest lesion, and its lungs.

As a radiologist sees it: the patient's right is on the left, the sagittal slice looks to the left. All at one scale.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import ndimage

from fedmed.data.geometry import corner_distance
from fedmed.data.prepare.check import LIMITS
from fedmed.data.prepare.inspect import UNREADABLE
from fedmed.errors import DataError
from fedmed.reports.palette import INK_DARK, PREDICTION, TRUTH, rgb
from fedmed.reports.segmentation_report import SCALE_BAR, contours
from fedmed.reports.surface import Viewpoint, find_lungs, render

WINDOW = (-1350.0, 150.0)  # HU: the lung window
NIGHT = "#08090b"
EDGE = [patheffects.withStroke(linewidth=2.5, foreground=NIGHT)]  # can be read on black and on white
WORDS: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 9}
WORDS |= {"color": INK_DARK, "path_effects": EDGE}
FRONT = Viewpoint()
MARKS = {"axial": tuple("RLAP"), "coronal": tuple("RLHF"), "sagittal": tuple("APHF")}  # left, right, top, bottom


@dataclass(frozen=True)
class ViewedCase:
    """A scan with one or two masks, array axes towards right, front, head (nearly so where the scan is oblique).

    Args:
        name: shown above the picture.
        image: (X, Y, Z) HU.
        prediction, truth: bool, the image's shape; no truth is None.
        spacing: voxel size in mm.
    """

    name: str
    image: np.ndarray
    prediction: np.ndarray
    truth: np.ndarray | None
    spacing: tuple[float, float, float]

    def millilitres(self, mask: np.ndarray) -> float:
        return float(mask.sum()) * float(np.prod(self.spacing)) / 1000

    def dice(self) -> float | None:
        """Dice of prediction and truth; None without truth or where both are empty."""
        if self.truth is None or not (self.truth.any() or self.prediction.any()):
            return None
        both = float((self.truth & self.prediction).sum())
        return 2 * both / float(self.truth.sum() + self.prediction.sum())


def read_case(image: Path, prediction: Path, truth: Path | None = None) -> ViewedCase:
    """Read a case from NIfTI files.

    Raises:
        DataError: a file is missing or unreadable or not a single volume, or a mask is on another grid than the image.
    """
    scan = _read(image)
    x, y, z = np.linalg.norm(nib.as_closest_canonical(scan).affine[:3, :3], axis=0).tolist()
    masks = [_read_mask(path, image, scan) for path in (prediction, *([truth] if truth else []))]
    name = image.name.removesuffix(".gz").removesuffix(".nii")
    return ViewedCase(name, _straight(scan), masks[0], masks[1] if truth else None, (x, y, z))


def _straight(image: nib.Nifti1Image) -> np.ndarray:
    return np.asarray(nib.as_closest_canonical(image).dataobj)


def _read(path: Path) -> nib.Nifti1Image:
    if not path.is_file():
        raise DataError(f"{path} does not exist; give a NIfTI file")
    try:
        image: Any = nib.load(path)
        values = np.asarray(image.dataobj, dtype=np.float32)  # now, for only this finds a file that is cut off
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read ({error}); give a NIfTI file") from error
    if values.ndim != 3:
        raise DataError(f"{path} has shape {values.shape}; a single volume (X, Y, Z) is needed")
    return nib.Nifti1Image(values, image.affine)


def _read_mask(path: Path, image: Path, scan: nib.Nifti1Image) -> np.ndarray:
    mask = _read(path)
    if mask.shape != scan.shape:
        raise DataError(f"{path} has shape {mask.shape}, but {image} has {scan.shape}; give a mask of this image")
    apart = corner_distance(scan.affine, mask.affine, scan.shape)
    if not apart <= LIMITS.grid:
        raise DataError(f"{path} lies {apart:.1f} mm away from {image}; give a mask of this image")
    return _straight(mask) > 0.5


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
        paint[..., :3], paint[..., 3] = rgb(colour), fill * mask
        axes.imshow(paint, extent=(0, width, height, 0), interpolation="nearest")
    for line in contours(mask, size):
        axes.plot(*line.T, color=colour, linewidth=1.2)


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
    columns = {0: (0.0, x * scale), 1: (x * scale + gap, y * scale)}
    rows = {0: (z * scale + gap, y * scale), 1: (0.0, z * scale)}

    def place(row: int, column: int) -> Axes:
        (left, wide), (low, high) = columns[column], rows[row]
        return figure.add_axes((left / width, low / height, wide / width, high / height))

    for plane, row, column in (("axial", 0, 0), ("coronal", 1, 0), ("sagittal", 1, 1)):
        draw_plane(place(row, column), case, plane, at)
    draw_lungs(place(0, 1), case, view)
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
