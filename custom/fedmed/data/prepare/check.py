"""What makes a CT volume or a mask unusable, and what is only unusual. Arrays in, sentences out; no files."""

from dataclasses import dataclass

import numpy as np

from fedmed.data.geometry import corner_distance


@dataclass(frozen=True)
class Limits:
    """Limits beyond which a volume is not a plausible CT.

    Attributes:
        lowest_peak: the brightest voxel of a scan with tissue in it is above this many HU.
        highest_peak: the brightest voxel is below this; extended CT scales end at about 30 000 HU.
        grid: how far in mm a corner of the mask may lie from that of its image, as in
            :class:`fedmed.data.transforms.check.CheckCased`: what is accepted here is accepted in training.
    """

    lowest_peak: float = -500.0
    highest_peak: float = 40000.0
    grid: float = 0.1


LIMITS = Limits()


def geometry_faults(shape: tuple[int, ...], affine: np.ndarray, zooms: tuple[float, ...]) -> list[str]:
    """Say what is wrong with the shape (voxels), the affine (4, 4, mm) or the header's voxel sizes (mm)."""
    if len(shape) != 3:
        return [f"{len(shape)}D (shape {_times(shape)}); a 3D volume is needed"]
    if 0 in shape:
        return [f"empty (shape {_times(shape)})"]
    if min(shape) == 1:
        return [f"2D: a single slice (shape {_times(shape)})"]
    if not np.isfinite(affine).all():
        return ["the affine has values that are not finite"]
    if min(zooms[:3]) <= 0 or abs(np.linalg.det(affine[:3, :3])) < 1e-9:
        return [f"spacing of zero (header: {_times(zooms[:3])} mm); position and size of the voxels are unknown"]
    return []


def value_faults(values: np.ndarray, limits: Limits = LIMITS) -> list[str]:
    """Say why the voxel values (any shape, HU expected) are not those of a CT."""
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
    if low >= 0 and high <= 1:
        return ["values lie in 0…1: a mask or a normalised image, not HU"]
    if high < limits.lowest_peak:
        return [f"implausible HU: the brightest voxel is {high:g}, below {limits.lowest_peak:g} (nothing but air)"]
    if high > limits.highest_peak:
        return [f"implausible HU: the brightest voxel is {high:g}, above {limits.highest_peak:g}"]
    return []


def value_notes(values: np.ndarray) -> list[str]:
    """Say what is unusual about voxel values that may still be those of a CT."""
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 255:
        return [f"values {low:g}…{high:g} look like an 8-bit picture, not HU"]
    if low >= 0:
        return [f"no value below 0 (range {low:g}…{high:g}): has the rescale intercept been lost?"]
    return []


def mask_faults(
    mask: np.ndarray, affine: np.ndarray, shape: tuple[int, ...], image_affine: np.ndarray, limits: Limits = LIMITS
) -> list[str]:
    """Say why a mask does not fit an image of ``shape`` and ``image_affine``, or is not binary."""
    faults = []
    if mask.shape != shape:
        faults.append(f"mask has shape {_times(mask.shape)}, image {_times(shape)}")
    elif not (distance := corner_distance(affine, image_affine, shape)) <= limits.grid:
        faults.append(f"mask lies up to {distance:.3g} mm away from its image (their affines differ)")
    if not np.issubdtype(mask.dtype, np.number):
        return [*faults, f"mask voxels are of type {mask.dtype}, not 0 and 1"]
    other = np.unique(mask[(mask != 0) & (mask != 1)])
    if other.size:
        shown = ", ".join(f"{value:g}" for value in other[:5]) + (" …" if other.size > 5 else "")
        faults.append(f"mask has values other than 0 and 1: {shown}")
    return faults


def voxel_sizes(affine: np.ndarray) -> np.ndarray:
    """Edge lengths (3,) of a voxel in mm."""
    return np.linalg.norm(affine[:3, :3], axis=0)


def _times(numbers: tuple) -> str:
    return "×".join(f"{number:g}" for number in numbers)
