"""Scores of masks: overlap, surface distance and islands; and scores from counts."""

import math
from collections.abc import Sequence

import numpy as np
import scipy  # loads its parts when they are used
from numpy.typing import ArrayLike
from torch import Tensor

from fedmed.errors import FedMedError

APART = 10.0  # mm, from which on a part of a prediction is an island


def hard_dice(prediction: Tensor, truth: Tensor) -> float:
    """Return ``2 |A ∩ B| / (|A| + |B|)`` of two bool masks of one shape: 1 when both are empty, 0 when one is.

    Counted in integers: float32 sums, as in MONAI's ``compute_dice``, are exact only up to 16.7 million voxels.
    """
    total = int(prediction.sum()) + int(truth.sum())
    return 2 * int((prediction & truth).sum()) / total if total else 1.0


def hard_iou(prediction: Tensor, truth: Tensor) -> float:
    """Return ``|A ∩ B| / |A ∪ B|`` of two bool masks of one shape; the same conventions. Equals ``D / (2 - D)``."""
    union = int((prediction | truth).sum())
    return int((prediction & truth).sum()) / union if union else 1.0


def f1_scores(tp: ArrayLike, fp: ArrayLike, fn: ArrayLike, absent: str = "zero") -> np.ndarray:
    """Return ``2 TP / (2 TP + FP + FN)`` of each label; MONAI's ``ConfusionMatrixMetric`` needs every prediction.

    Args:
        tp, fp, fn: counts of the J labels, shape (J,).
        absent: score of a label that is neither present nor predicted: ``zero``, or ``skip`` for NaN, which
            ``numpy.nanmean`` leaves out of the macro average.

    Returns:
        float64 (J,).

    Raises:
        FedMedError: an unknown ``absent``.
    """
    tp, fp, fn = (np.asarray(counts, dtype=np.float64) for counts in (tp, fp, fn))
    return ratios(2 * tp, 2 * tp + fp + fn, absent)


def ratios(part: ArrayLike, whole: ArrayLike, absent: str) -> np.ndarray:
    """Return ``part / whole``, float64; where ``whole`` is 0, as ``absent`` says: see :func:`f1_scores`."""
    if absent not in ("zero", "skip"):
        raise FedMedError(f"F1: absent is {absent!r}; use 'zero' or 'skip'")
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    return np.divide(part, whole, out=np.full_like(whole, 0.0 if absent == "zero" else np.nan), where=whole > 0)


def surface_distances(
    a: np.ndarray, b: np.ndarray, spacing: Sequence[float] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance of each border pixel of A to the nearest border pixel of B, and the other way round.

    The border is the mask minus its erosion by the 1-connected cross; what touches the image's edge is border.

    Args:
        a, b: non-empty bool masks of one shape, any dimension.
        spacing: pixel size along each axis; default 1.

    Returns:
        Distances from A, and from B, in units of ``spacing``.
    """
    a, b = np.asarray(a, bool), np.asarray(b, bool)
    box = scipy.ndimage.find_objects((a | b).astype(np.uint8))[0]  # outside it lies no border, so it costs time alone
    borders = [mask[box] & ~scipy.ndimage.binary_erosion(mask[box]) for mask in (a, b)]
    to_a, to_b = (scipy.ndimage.distance_transform_edt(~border, sampling=spacing) for border in borders)
    return to_b[borders[0]], to_a[borders[1]]


def mask_distances(a: np.ndarray, b: np.ndarray, spacing: Sequence[float] | None = None) -> tuple[float, float]:
    """Return HD95 and ASSD: 95th percentile, linearly interpolated, and mean of the surface distances.

    Both are of the two directions together, as in MedPy; MONAI's HD95 is the larger of two directions' percentiles.

    Args:
        a, b, spacing: as in :func:`surface_distances`, but masks may be empty.

    Returns:
        The image's diagonal when exactly one mask is empty; NaN (leave the case out) when both are.

    Raises:
        FedMedError: masks of different shapes.
    """
    a, b = np.asarray(a, bool), np.asarray(b, bool)
    if a.shape != b.shape:
        raise FedMedError(f"surface distance: masks have shapes {a.shape} and {b.shape}; put them on one grid")
    if not a.any() and not b.any():
        return math.nan, math.nan
    if not a.any() or not b.any():
        diagonal = float(np.linalg.norm(np.multiply(a.shape, 1.0 if spacing is None else spacing)))
        return diagonal, diagonal
    distances = np.concatenate(surface_distances(a, b, spacing))
    return float(np.percentile(distances, 95)), float(distances.mean())


def islands(
    truth: np.ndarray, prediction: np.ndarray, spacing: Sequence[float] | None = None, apart: float = APART
) -> tuple[int, int]:
    """Return the number of parts of a prediction that lie far from all of the truth, and of their voxels together.

    A few of them make HD95 large at a high Dice. Parts are joined through sides, edges and corners. Where the truth is
    empty, every part is one.

    Args:
        truth, prediction, spacing: as in :func:`surface_distances`, but masks may be empty.
        apart: the least distance of a part's nearest voxel, in units of ``spacing``.
    """
    truth, prediction = np.asarray(truth, bool), np.asarray(prediction, bool)
    if not prediction.any():
        return 0, 0
    box = scipy.ndimage.find_objects((truth | prediction).astype(np.uint8))[0]
    truth, prediction = truth[box], prediction[box]
    parts, count = scipy.ndimage.label(prediction, np.ones((3,) * prediction.ndim))
    sizes, numbers = np.bincount(parts.ravel(), minlength=count + 1), np.arange(1, count + 1)
    if not truth.any():
        return count, int(sizes[1:].sum())
    apart_ones = np.setdiff1d(numbers, parts[truth])
    if not len(apart_ones):  # the usual case, in which no distance is needed
        return 0, 0
    nearest = scipy.ndimage.minimum(scipy.ndimage.distance_transform_edt(~truth, sampling=spacing), parts, apart_ones)
    far = apart_ones[np.asarray(nearest) >= apart]
    return len(far), int(sizes[far].sum())
