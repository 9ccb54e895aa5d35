"""Facts about one image for a site's fingerprint, and what becomes of those of many: medians, percentiles, shares."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVELS = (0.5, 50.0, 99.5)  # % of an image's voxels
SPREAD = (10.0, 50.0, 90.0)  # % of the images
THREE = ("low", "median", "high")
LOOKED_AT = 1_000_000  # values of an image that its percentiles are of, at most
MOST_VALUES = 20  # of masks
Read = Callable[[Path], NDArray[Any]]  # an image as a bundle's reader opens it: (rows, columns), 0 to 1


@dataclass(frozen=True)
class ImageFacts:
    """One image; what is not known of its kind is empty.

    Attributes:
        size, spacing: along each axis, in voxels or pixels, and mm.
        intensity: the values that 0.5, 50 and 99.5 % of its voxels do not exceed.
        centre: along each axis, where the middle of its brightness lies, 0 to 1.
        grid: mean brightness of 4 × 4 fields, row by row.
        orientation: of the file's axes, such as RAS.
        values: value of its mask -> voxels.
        labels: number of a class -> how often its table says it.
    """

    size: tuple[int, ...]
    spacing: tuple[float, ...] = ()
    intensity: tuple[float, ...] = ()
    centre: tuple[float, ...] = ()
    grid: tuple[float, ...] = ()
    orientation: str = ""
    values: Mapping[int, float] = field(default_factory=dict)
    labels: Mapping[int, float] = field(default_factory=dict)

    @property
    def extent(self) -> tuple[float, ...]:
        """Size in mm along each axis; empty where there is no spacing."""
        return tuple(n * mm for n, mm in zip(self.size, self.spacing, strict=False))


def summary(facts: Sequence[ImageFacts], axes: Sequence[str], grid: Sequence[str]) -> dict[str, Any]:
    """Put the facts of many images together, in the form of :mod:`fedmed.messages.fingerprint`.

    Args:
        axes, grid: names of an image's axes, and of the fields of a picture, row by row.
    """
    made: dict[str, Any] = {}
    for name in ("size", "spacing", "extent"):
        if rows := [row for one in facts if (row := getattr(one, name))]:
            spread = np.percentile(rows, SPREAD, axis=0).T
            made[name] = {axis: _three(values) for axis, values in zip(axes, spread, strict=True)}
    if rows := [one.intensity for one in facts if one.intensity]:
        made["intensity"] = _three(np.median(rows, axis=0))
    if rows := [one.centre for one in facts if one.centre]:
        made["centre"] = {axis: round(float(v), 2) for axis, v in zip(axes, np.median(rows, axis=0), strict=True)}
    if rows := [one.grid for one in facts if one.grid]:
        made["grid"] = {name: round(float(v), 2) for name, v in zip(grid, np.mean(rows, axis=0), strict=True)}
    if codes := Counter(one.orientation for one in facts if one.orientation):
        made["orientation"] = {code: round(n / codes.total(), 1) for code, n in sorted(codes.items())}
    if values := _mean_shares(one.values for one in facts):
        made["values"] = dict(sorted(values.items(), key=lambda pair: -pair[1])[:MOST_VALUES])
    if labels := _mean_shares(one.labels for one in facts):
        made["classes"] = labels
    return made


def _three(values: Iterable[float]) -> dict[str, float]:
    return {name: three_digits(float(value)) for name, value in zip(THREE, values, strict=True)}


def three_digits(value: float) -> float:
    """A number with its first three digits alone."""
    return float(f"{value:.3g}")


def _mean_shares(counts: Iterable[Mapping[int, float]]) -> dict[str, float]:
    """Mean over the images of the share that each key has in one; images without any do not count."""
    known = [{key: n / total for key, n in of.items()} for of in counts if (total := sum(of.values()))]
    keys = sorted({key for of in known for key in of})
    return {str(key): three_digits(sum(of.get(key, 0.0) for of in known) / len(known)) for key in keys}


def thinned(values: NDArray[Any]) -> NDArray[np.float32]:
    """Every n-th value along each axis, so that not more than a million or so are left."""
    step = max(1, round((values.size / LOOKED_AT) ** (1 / values.ndim)))
    return np.asarray(values[(slice(None, None, step),) * values.ndim], np.float32)


def levels(values: NDArray[Any]) -> tuple[float, ...]:
    """The values that 0.5, 50 and 99.5 % do not exceed; empty where a value is not finite."""
    return tuple(np.percentile(values, LEVELS).tolist()) if values.size and np.isfinite(values).all() else ()


def middle(values: NDArray[Any], low: float, high: float) -> tuple[float, ...]:
    """Along each axis the centre of mass of what lies above ``low``, from 0 to 1; 0.5 where nothing does."""
    weights = np.clip(values, low, high) - low
    total = float(weights.sum(dtype=np.float64))
    places = []
    for axis, length in enumerate(values.shape):
        others = tuple(other for other in range(values.ndim) if other != axis)
        along = weights.sum(axis=others, dtype=np.float64)
        places.append(float(along @ np.arange(length)) / total / (length - 1) if total > 0 and length > 1 else 0.5)
    return tuple(places)


def fields(image: NDArray[Any]) -> tuple[float, ...]:
    """Mean brightness of 4 × 4 fields of a picture (rows, columns), row by row; empty of a smaller one."""
    if min(image.shape) < 4 or not np.isfinite(image).all():
        return ()
    parts = (np.array_split(band, 4, axis=1) for band in np.array_split(image, 4, axis=0))
    return tuple(float(np.clip(part.mean(dtype=np.float64), 0, 1)) for band in parts for part in band)


def counted_values(mask: NDArray[Any]) -> dict[int, float]:
    """Value of a mask -> how many of its voxels have it; values between whole numbers count as the nearer one."""
    total: Counter[int] = Counter()
    for part in mask:  # a slice at a time: counting takes eight bytes a voxel
        whole = part if mask.dtype.kind in "iub" else np.rint(np.nan_to_num(part, posinf=0, neginf=0))
        kept = np.clip(whole.ravel(), -99_999, 99_999).astype(np.int64)
        lowest = int(kept.min(initial=0))
        counts = np.bincount(kept - lowest)
        total.update({int(value) + lowest: int(counts[value]) for value in np.flatnonzero(counts)})
    return {value: float(number) for value, number in total.items()}
