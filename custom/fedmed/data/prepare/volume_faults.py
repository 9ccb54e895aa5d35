"""Faults of a prepared volume or of the values of its mask."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmed.data.geometry import corner_distance
from fedmed.errors import DataError

NOT_BINARY = "mask has values other than 0 and 1"
SCALES = (1, 100, 255)  # what a soft mask's inside may be called: a probability, percent, or a picture's white
MOST_LABELS = 10  # whole numbers of a mask that are named one by one
SCAN = -100  # values below this are no mask's
LOWEST_PEAK = -500.0  # HU; the brightest voxel of a scan with tissue in it is above this
HIGHEST_PEAK = 40000.0  # HU; extended CT scales end at about 30 000
NORMALISED = 10.0  # HU on both sides of 0; air and bone are far beyond
LEAST_AIR = -200.0  # HU; a chest has air in it and around it
GRID_TOLERANCE = 0.1  # mm between corners of mask and image, as in CheckCased: what is accepted here can be trained on


@dataclass(frozen=True)
class Foreground:
    """The voxels that count as 1: those with one of ``values``, or those above ``threshold``; without both, those of 1.

    DataError if both are given, or one is not finite.
    """

    values: tuple[float, ...] = ()
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.values and self.threshold is not None:
            raise DataError("--mask-value and --mask-threshold exclude each other; give one of them")
        if not np.isfinite([*self.values, self.threshold or 0]).all() or 0 in self.values:
            raise DataError("--mask-value (not 0, the background) and --mask-threshold must be finite numbers")

    @property
    def converts(self) -> bool:
        """True where masks must be written anew."""
        return bool(self.values) or self.threshold is not None

    @property
    def words(self) -> str | None:
        """For a report; None where masks are taken as they are."""
        if self.threshold is not None:
            return f"above {self.threshold:g}"
        return ", ".join(f"{value:g}" for value in self.values) or None

    def of(self, mask: np.ndarray) -> tuple[np.ndarray, list[str]]:
        """Return a mask of 0 and 1 (uint8, the same shape) and what to look at; one that is not finite is not changed.

        Raises:
            DataError: values between whole numbers, where labels were named.
        """
        if not self.converts or not np.issubdtype(mask.dtype, np.number) or not np.isfinite(mask).all():
            return mask, []
        if self.threshold is not None:
            return (mask > self.threshold).astype(np.uint8), []
        chosen = np.isin(mask, self.values)
        others = np.unique(mask[~chosen & (mask != 0)])
        if (others != np.rint(others)).any():
            threshold = f"--mask-threshold {half_way(mask):g}"
            raise DataError(f"mask has values such as {others[0]:.3g}, not labels; use {threshold}")
        shown = ", ".join(f"{value:g}" for value in others[:5]) + (" …" if others.size > 5 else "")
        return chosen.astype(np.uint8), [f"mask values {shown} count as background"] if others.size else []


BINARY = Foreground()  # masks of 0 and 1, taken as they are


def hinted(faults: Sequence[str], mask: np.ndarray) -> list[str]:
    """The same sentences; the one of a mask that is not binary says what to do, from its values."""
    return [f"{fault}; {proposal(mask)}" if fault.startswith(NOT_BINARY) else fault for fault in faults]


def proposal(mask: np.ndarray) -> str:
    """Propose the option of ``fedmed prepare ct`` for a mask of numbers (any shape) that are not 0 and 1 alone.

    Few whole numbers are labels, of which the lowest is the background where there is no 0. Others are labels too where
    they fill areas, and the blurred border of one area where most voxels inside have the highest value.
    """
    if not np.isfinite(mask).all():
        return "save it anew without NaN and infinity"
    inside = mask[mask != 0]
    values, counts = np.unique(inside, return_counts=True)
    if values[0] < SCAN:
        return "it looks like a scan; give the folder or the names of the masks"
    whole = bool((values == np.rint(values)).all())
    if whole and len(values) <= MOST_LABELS:
        named = values if inside.size < mask.size or len(values) == 1 else values[1:]
        words = f"say what counts: fedmed prepare ct --mask-value {','.join(f'{value:g}' for value in named)}"
        return words + (", or those of them that are the structure" if len(named) > 1 else "")
    if whole and counts[-1] < inside.size / 2:
        return (
            f"say which of its {len(values)} labels count: fedmed prepare ct --mask-value {values[0]:g},{values[1]:g}"
        )
    return f"it is a soft mask: fedmed prepare ct --mask-threshold {half_way(mask):g} counts what is above"


def half_way(mask: np.ndarray) -> float:
    """Half of what a soft mask's inside is called; of its own highest value where that is no usual scale."""
    highest = float(mask.max())
    scale = next((scale for scale in SCALES if scale / 2 < highest <= 1.01 * scale), highest)
    return float(f"{scale / 2:.3g}")


def parse_values(text: str | None) -> tuple[float, ...]:
    """Numbers between commas; DataError for anything else."""
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise DataError(f"--mask-value '{text}' must be numbers, such as 255 or 1,2") from error


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
