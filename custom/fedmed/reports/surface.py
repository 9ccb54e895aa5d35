"""A picture of the lungs as glass with lesions inside, rendered without a display or a graphics library.

Smoothed masks are turned towards the viewer and composed slice by slice from front to back (Levoy 1988).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import to_rgb
from scipy import ndimage

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
