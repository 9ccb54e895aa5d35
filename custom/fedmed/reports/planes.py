"""A case in three planes and in 3D: axial, coronal and sagittal slices through its largest lesion, and its lungs.

As a radiologist sees it: the patient's right is on the left, the sagittal slice looks to the left. All at one scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from scipy import ndimage

from fedmed.data.geometry import axis_order, corner_distance
from fedmed.data.image_size import UNREADABLE, opened_nifti
from fedmed.data.prepare.volume_faults import GRID_TOLERANCE
from fedmed.errors import DataError
from fedmed.reports.palette import EDGE, INK_DARK, NIGHT, PREDICTION, TRUTH
from fedmed.reports.slice_picture import SCALE_BAR, contours

WINDOW = (-1350.0, 150.0)  # HU: the lung window
WORDS: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 9}
WORDS |= {"color": INK_DARK, "path_effects": EDGE}
MARKS = {"axial": tuple("RLAP"), "coronal": tuple("RLHF"), "sagittal": tuple("APHF")}  # left, right, top, bottom
AIR = -400.0  # HU; denser than healthy lung, thinner than soft tissue
THIN = -920.0  # HU; between the air around the patient and lung, each on average
SMALL_LUNG = 300.0  # ml
GRAIN = 2.0  # mm; of the smoothed masks
DEPTH = 2  # a slice's thickness in pixels
LIGHT = np.array([-0.45, 0.55, -0.70])  # towards the light: (right, up, away from the viewer)
GLASS = np.array([0.62, 0.74, 0.86])


@dataclass(frozen=True)
class Viewpoint:
    """Parallel projection of a patient who faces the viewer."""

    azimuth: float = 24.0  # degrees that the viewer walks towards the patient's left side
    elevation: float = 10.0  # degrees that the viewer rises above the patient's chest
    pixels: int = 400  # at most, of the picture's longer side; a pixel is at least 1 mm wide

    def axes(self) -> np.ndarray:
        """Rows: the picture's right, its top, and away from the viewer, as directions in RAS+, shape (3, 3)."""
        a, e = np.radians([self.azimuth, self.elevation])
        right = np.array([-np.cos(a), -np.sin(a), 0.0])
        away = np.array([np.sin(a) * np.cos(e), -np.cos(a) * np.cos(e), -np.sin(e)])
        return np.stack([right, np.cross(right, away), away])


FRONT = Viewpoint()


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

    ``title`` None is the case's name.
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
    facts = [(f"prediction {case.millilitres(case.prediction):.0f} ml", PREDICTION)]
    if case.truth is not None:
        facts.append((f"truth {case.millilitres(case.truth):.0f} ml", TRUTH))
    if (dice := case.dice()) is not None:
        facts.append((f"Dice {dice:.2f}", INK_DARK))
    for place, (words, colour) in enumerate(reversed(facts)):
        figure.text(0.988 - 0.17 * place, y, words, color=colour, fontsize=10, ha="right", va="center")


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
        image = opened_nifti(path)
        values = np.asarray(image.dataobj, dtype=np.float32)  # now, for only this finds a file that is cut off
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read ({error}); give a NIfTI file") from error
    if values.ndim != 3:
        raise DataError(f"{path} has shape {values.shape}; a single volume (X, Y, Z) is needed")
    return nib.Nifti1Image(values, image.affine)


def _read_mask(path: Path, image: Path, scan: nib.Nifti1Image) -> np.ndarray:
    mask = _read(path)
    if order := axis_order(mask.affine, mask.shape, scan.affine, scan.shape, GRID_TOLERANCE):
        turned = np.flip(np.asarray(mask.dataobj).transpose(order[0]), order[1])
        mask = nib.Nifti1Image(turned, scan.affine)
    if mask.shape != scan.shape:
        raise DataError(f"{path} has shape {mask.shape}, but {image} has {scan.shape}; give a mask of this image")
    apart = corner_distance(scan.affine, mask.affine, scan.shape)
    if not apart <= GRID_TOLERANCE:
        raise DataError(f"{path} lies {apart:.1f} mm away from {image}; give a mask of this image")
    return _straight(mask) > 0.5


def find_lungs(image: np.ndarray, spacing: Sequence[float]) -> np.ndarray:
    """Find the air inside the body: for pictures, not for measurements.

    Args:
        image: (X, Y, Z) HU.
        spacing: voxel size in mm.

    Returns:
        Bool mask of the same shape: the largest two air-filled parts with the vessels inside them; empty where there
        is none. Air that reaches an edge between two sides of the volume (within 8 mm) is outside the body, unless
        nothing else is as large as a lung: in a tight crop the lungs reach it too, and are not as thin as air.
    """
    parts, count = ndimage.label(image < AIR)
    sizes = np.bincount(parts.ravel(), minlength=count + 1) * float(np.prod(spacing)) / 1000  # ml
    widths = (min(round(8.0 / s) + 1, n) for s, n in zip(spacing[:2], image.shape[:2], strict=True))
    near = [np.r_[:width, -width:0] for width in widths]
    corner = np.setdiff1d(parts[np.ix_(*near)], 0)
    sizes[0], cropped = 0, sizes[corner] * (ndimage.mean(image, parts, corner) > THIN)
    sizes[corner] = 0
    if sizes.max() < SMALL_LUNG:
        sizes[corner] = cropped
    if not sizes.any():
        return np.zeros(image.shape, dtype=bool)
    largest = [part for part in np.argsort(sizes)[-2:] if sizes[part] > 0.1 * sizes.max()]
    reach = [max(1, round(4.0 / s)) for s in spacing]  # gaps up to twice as wide are filled: the vessels
    padded = np.pad(np.isin(parts, largest), [(r, r) for r in reach])
    return ndimage.grey_closing(padded, tuple(2 * r + 1 for r in reach))[tuple(slice(r, -r) for r in reach)]


def render(
    lungs: np.ndarray, lesions: Sequence[tuple[np.ndarray, str]], spacing: Sequence[float], view: Viewpoint
) -> np.ndarray:
    """Draw the lungs, transparent, and the lesions, solid.

    Args:
        lungs: bool (X, Y, Z), axes towards right, front, head.
        lesions: masks like ``lungs``, each with its colour "#rrggbb".
        spacing: voxel size in mm.
        view: where the viewer stands.

    Returns:
        (H, W, 4) float in 0..1: colour (not multiplied by opacity) and opacity. One pixel is the same length across
        and down.
    """
    masks = [lungs, *(mask for mask, _ in lesions)]
    whole = tuple(slice(0, n) for n in lungs.shape)
    box = next(iter(ndimage.find_objects(np.logical_or.reduce(masks).astype(np.uint8))), whole)
    turned = [_turn(_field(mask[box], spacing), view) for mask in masks]
    colours, light = [np.array(to_rgb(colour)) for _, colour in lesions], LIGHT / np.linalg.norm(LIGHT)
    height, width = turned[0].shape[1:]
    colour, opacity = np.zeros((height, width, 3), np.float32), np.zeros((height, width, 1), np.float32)
    for depth in range(1, len(turned[0]) - 1):
        layers = [_solid(volume, depth, paint, light) for volume, paint in zip(turned[1:], colours, strict=True)]
        for paint, share in [*layers, _glass(turned[0], depth, light)]:
            colour += (1 - opacity) * share * paint
            opacity += (1 - opacity) * share
    return np.concatenate([np.clip(colour / np.maximum(opacity, 1e-6), 0, 1), opacity], axis=-1)


def _field(mask: np.ndarray, spacing: Sequence[float]) -> np.ndarray:
    """A mask as 0..1 on a grid of ``GRAIN`` mm, with soft borders that hide the scan's slices, and a margin."""
    margin = [round(12.0 / s) + 1 for s in spacing]
    padded = np.pad(mask.astype(np.float32), [(m, m) for m in margin])
    shape = tuple(round((n - 1) * s / GRAIN) + 1 for n, s in zip(padded.shape, spacing, strict=True))
    even = ndimage.affine_transform(padded, GRAIN / np.asarray(spacing), output_shape=shape, order=1)
    return ndimage.gaussian_filter(even, [max(2.0, 0.6 * s) / GRAIN for s in spacing])


def _turn(field: np.ndarray, view: Viewpoint) -> np.ndarray:
    """The field on the viewer's grid: (depth, row, column), rows from the top, depth away from the viewer."""
    right, up, away = view.axes()
    extent = np.array([np.abs(direction) @ np.array(field.shape) for direction in (away, up, right)])
    pixel = max(extent[1:].max() / view.pixels, 1.0 / GRAIN)
    step = pixel * np.array([DEPTH, 1, 1])
    shape = np.ceil(extent / step).astype(int)
    matrix = np.stack([away, -up, right], axis=1) * step
    offset = (np.array(field.shape) - 1) / 2 - matrix @ ((shape - 1) / 2)
    return ndimage.affine_transform(field, matrix, offset, output_shape=tuple(shape), order=1)


def _gradient(volume: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Outward normal (H, W, 3) in the viewer's directions (right, up, away), and the steepness (H, W) before it."""
    down, right = np.gradient(volume[depth])
    away = (volume[depth + 1] - volume[depth - 1]) / (2 * DEPTH)
    steep = np.stack([-right, down, -away], axis=-1)
    length = np.linalg.norm(steep, axis=-1)
    return steep / np.maximum(length, 1e-6)[..., None], length


def _solid(volume: np.ndarray, depth: int, paint: np.ndarray, light: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Colour and opacity of an opaque body in one slice."""
    share = np.clip((volume[depth] - 0.35) / 0.2, 0, 1)[..., None]
    normal, _ = _gradient(volume, depth)
    facing = np.clip(normal @ light, 0, 1)[..., None]
    return paint * (0.42 + 0.62 * facing) + 0.35 * facing**24, share


def _glass(volume: np.ndarray, depth: int, light: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Colour and opacity of a thin shell that is clear from the front and dense where it turns away."""
    normal, steepness = _gradient(volume, depth)
    rim = (1 - np.abs(normal[..., 2])) ** 2
    share = np.clip(DEPTH * steepness * (0.12 + 0.9 * rim), 0, 1)[..., None]
    facing = np.clip(normal @ light, 0, 1)[..., None]
    return GLASS * (0.55 + 0.45 * facing) + 0.25 * facing**16, share
