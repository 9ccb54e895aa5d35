"""Scores of hard predictions: overlap, precision, recall and F1."""

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from fedmed.errors import FedMedError


def hard_dice(prediction: Tensor, truth: Tensor) -> float:
    """``2 |A ∩ B| / (|A| + |B|)`` of two bool masks of one shape: 1 when both are empty, 0 when one is.

    Counted in integers: float32 sums, as in MONAI's ``compute_dice``, are exact only up to 16.7 million voxels.
    """
    total = int(prediction.sum()) + int(truth.sum())
    return 2 * int((prediction & truth).sum()) / total if total else 1.0


def hard_iou(prediction: Tensor, truth: Tensor) -> float:
    """``|A ∩ B| / |A ∪ B|`` of two bool masks of one shape; the same conventions. Equals ``D / (2 - D)``."""
    union = int((prediction | truth).sum())
    return int((prediction & truth).sum()) / union if union else 1.0


def f1_scores(tp: ArrayLike, fp: ArrayLike, fn: ArrayLike, absent: str = "zero") -> np.ndarray:
    """``2 TP / (2 TP + FP + FN)`` of each label, from counts; MONAI's ``ConfusionMatrixMetric`` needs every prediction.

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
    return _shares(2 * tp, 2 * tp + fp + fn, absent)


def precision_scores(tp: ArrayLike, fp: ArrayLike, absent: str = "zero") -> np.ndarray:
    """``TP / (TP + FP)`` of each label; ``absent``: of one that is never predicted. Otherwise as :func:`f1_scores`."""
    tp, fp = (np.asarray(counts, dtype=np.float64) for counts in (tp, fp))
    return _shares(tp, tp + fp, absent)


def recall_scores(tp: ArrayLike, fn: ArrayLike, absent: str = "zero") -> np.ndarray:
    """``TP / (TP + FN)`` of each label; ``absent``: of one that is never present. Otherwise as :func:`f1_scores`."""
    tp, fn = (np.asarray(counts, dtype=np.float64) for counts in (tp, fn))
    return _shares(tp, tp + fn, absent)


def _shares(part: np.ndarray, whole: np.ndarray, absent: str) -> np.ndarray:
    if absent not in ("zero", "skip"):
        raise FedMedError(f"F1: absent is {absent!r}; use 'zero' or 'skip'")
    empty = 0.0 if absent == "zero" else np.nan
    return np.divide(part, whole, out=np.full_like(whole, empty), where=whole > 0)
