"""What makes a CT volume or a mask unusable, and what is only unusual. Arrays in, sentences out; no files."""

import numpy as np

from fedmed.data.geometry import corner_distance
from fedmed.data.prepare.mask_values import NOT_BINARY

LOWEST_PEAK = -500.0  # HU; the brightest voxel of a scan with tissue in it is above this
HIGHEST_PEAK = 40000.0  # HU; extended CT scales end at about 30 000
NORMALISED = 10.0  # HU on both sides of 0; air and bone are far beyond
LEAST_AIR = -200.0  # HU; a chest has air in it and around it
GRID_TOLERANCE = 0.1  # mm between corners of mask and image, as in CheckCased: what is accepted here can be trained on


def geometry_faults(
    shape: tuple[int, ...], affine: np.ndarray, zooms: tuple[float, ...], placed: bool = True
) -> list[str]:
    """Say what is wrong with the shape (voxels), the affine (4, 4, mm) or the header's voxel sizes (mm).

    ``placed`` is whether the header has an affine at all: a sform or qform code other than 0.
    """
    if len(shape) != 3:
        return [f"{len(shape)}D (shape {_times(shape)}); a 3D volume is needed"]
    if 0 in shape:
        return [f"empty (shape {_times(shape)})"]
    if min(shape) == 1:
        return [f"2D: a single slice (shape {_times(shape)})"]
    if not placed:
        return ["no affine (sform and qform code are 0); position and size of the voxels are unknown"]
    if not np.isfinite(affine).all():
        return ["the affine has values that are not finite"]
    if min(zooms[:3]) <= 0 or abs(np.linalg.det(affine[:3, :3])) < 1e-9:
        return [f"spacing of zero (header: {_times(zooms[:3])} mm); position and size of the voxels are unknown"]
    return []


def value_faults(values: np.ndarray, lowest_peak: float = LOWEST_PEAK) -> list[str]:
    """Say why the voxel values (any shape) are not those of a CT in HU with a voxel above ``lowest_peak``."""
    if not np.issubdtype(values.dtype, np.number) or np.iscomplexobj(values):
        return [f"voxels are of type {values.dtype}, not numbers in HU"]
    if values.size == 0:
        return ["empty (no voxels)"]
    if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
        count = int(values.size - np.count_nonzero(np.isfinite(values)))
        return [f"{count} voxels are NaN or infinite"]
    low, high = float(values.min()), float(values.max())
    if low == high:
        return [f"empty: every voxel is {low:g}"]
    if max(abs(low), abs(high)) <= NORMALISED:
        return [f"values lie in {low:.3g}…{high:.3g}: a mask or a normalised image, not HU"]
    if high < lowest_peak:
        return [f"implausible HU: the brightest voxel is {high:g}, below {lowest_peak:g} (nothing but air)"]
    if high > HIGHEST_PEAK:
        return [f"implausible HU: the brightest voxel is {high:g}, above {HIGHEST_PEAK:g}"]
    return []


def value_notes(values: np.ndarray) -> list[str]:
    """Say what is unusual about voxel values that may still be those of a CT."""
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 255:
        return [f"values {low:g}…{high:g} look like an 8-bit picture, not HU"]
    if low > LEAST_AIR:
        return [f"no value near that of air, -1000 (range {low:g}…{high:g}): has the rescale intercept been lost?"]
    return []


def mask_faults(mask: np.ndarray, affine: np.ndarray, shape: tuple[int, ...], image_affine: np.ndarray) -> list[str]:
    """Say why a mask does not fit an image of ``shape`` and ``image_affine``, or is not binary."""
    faults = []
    if mask.shape != shape:
        faults.append(f"mask has shape {_times(mask.shape)}, image {_times(shape)}")
    elif not (distance := corner_distance(affine, image_affine, shape)) <= GRID_TOLERANCE:
        faults.append(f"mask lies up to {distance:.3g} mm away from its image (their affines differ)")
    if not np.issubdtype(mask.dtype, np.number):
        return [*faults, f"mask voxels are of type {mask.dtype}, not 0 and 1"]
    other = np.unique(mask[(mask != 0) & (mask != 1)])
    if other.size:
        shown = ", ".join(f"{value:g}" for value in other[:5]) + (" …" if other.size > 5 else "")
        faults.append(f"{NOT_BINARY}: {shown}")
    return faults


def _times(numbers: tuple[float, ...]) -> str:
    return "×".join(f"{number:g}" for number in numbers)
