"""Scan of a chest, and the mask that a site's readers draw on it."""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from fedmed.errors import DataError
from fedmed_demo.grid import Grid, smooth_noise

STYLES = ("tight", "generous", "loose", "threshold")  # the last: a density threshold inside a rough outline


@dataclass(frozen=True)
class Scanner:
    """Settings of one site's scanner."""

    pixel: float  # in-plane spacing in mm for a patient of average size
    slices: float  # slice spacing in mm
    kernel: str  # "soft" (smooth, blotchy noise) or "sharp" (enhanced edges, fine noise)
    noise: float  # standard deviation in HU in soft tissue
    offset: float = 0.0  # HU added everywhere inside the scanned circle by poor calibration
    signs: tuple[int, int, int] = (-1, -1, 1)  # directions of the array axes in RAS+, see Grid


def scan(image: np.ndarray, rng: np.random.Generator, grid: Grid, scanner: Scanner, apex: float) -> np.ndarray:
    """Return the int16 scan (-1024 … 3071 HU) of a chest painted in HU; ``apex`` is its height in mm."""
    thick = 0.42
    if scanner.kernel == "soft":
        blurred = ndimage.gaussian_filter(image, [0.62, 0.62, thick])
    else:
        blurred = ndimage.gaussian_filter(image, [0.35, 0.35, thick])
        blurred += 0.55 * (blurred - ndimage.gaussian_filter(blurred, [1.1, 1.1, 0]))
    blurred += scanner.noise * _noise(rng, grid, scanner.kernel, apex)
    # Beam hardening: slow waves of a few HU.
    blurred += 4 * smooth_noise(rng, grid, 90.0) + scanner.offset
    return np.clip(np.rint(blurred), -1024, 3071).astype(np.int16)


def _noise(rng: np.random.Generator, grid: Grid, kernel: str, apex: float) -> np.ndarray:
    """Noise of about unit spread in the middle of the chest: grainy, and streaky between the shoulders."""
    white = rng.standard_normal(grid.shape, dtype=np.float32)
    if kernel == "soft":
        grain = ndimage.gaussian_filter(white, [0.75, 0.75, 0.2])
    else:
        grain = white - 0.6 * ndimage.gaussian_filter(white, [1.0, 1.0, 0])
    x, y, z = grid.axes
    shoulders = np.clip((z / apex - 0.78) / 0.2, 0, 1).reshape(-1)
    rows = np.flatnonzero(shoulders > 0)
    if len(rows):
        part = slice(rows.min(), rows.max() + 1)
        streaks = ndimage.gaussian_filter1d(white[..., part], 9.0, axis=0)
        grain[..., part] += 2.2 * shoulders[part] * streaks
    # Fewest photons come through the middle; the air round the patient is calm.
    middle = (
        0.2 + 0.9 * np.exp(-(((x / 165) ** 2 + (y / 125) ** 2) ** 2)) + 0.2 * np.exp(-((x / 90) ** 2 + (y / 70) ** 2))
    )
    return grain * (middle / float(grain[::3, ::3].std()))


def annotate(disease: np.ndarray, image: np.ndarray, lungs: np.ndarray, grid: Grid, style: str) -> np.ndarray:
    """Draw the mask of one scan in one of ``STYLES``: uint8, 0 or 1, the grid's shape.

    ``disease`` and ``lungs`` are shares of each voxel, 0 … 1; ``image`` is the scan in HU, as the reader sees it.
    """
    if style == "tight":
        mask = disease > 0.55
    elif style == "generous":
        mask = _grown(disease > 0.4, grid, 3.5) & (lungs > 0.1)
    elif style == "loose":  # one outline round neighbouring lesions
        mask = _grown(disease > 0.3, grid, 7.0) & (lungs > 0.1)
    elif style == "threshold":
        blurred = ndimage.gaussian_filter(image, [0.9, 0.9, 0.3])
        mask = _grown(disease > 0.35, grid, 4.0) & (blurred > -690) & (lungs > 0.5)
        mask = ndimage.binary_opening(mask, np.ones((2, 2, 1), dtype=bool))
    else:
        raise DataError(f"annotation style '{style}' is unknown; use one of {', '.join(STYLES)}")
    return mask.astype(np.uint8)


def _grown(mask: np.ndarray, grid: Grid, margin: float) -> np.ndarray:
    """``mask`` grown by ``margin`` mm within each slice, its outline smoothed as a quick hand would."""
    width = [margin / grid.spacing[0], margin / grid.spacing[1], 0]
    return ndimage.gaussian_filter(mask.astype(np.float32), width) > 0.22
