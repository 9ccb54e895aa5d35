"""Scores of hard predictions."""

from torch import Tensor


def hard_dice(prediction: Tensor, truth: Tensor) -> float:
    """``2 |A ∩ B| / (|A| + |B|)`` of two bool masks of one shape: 1 when both are empty, 0 when one is.

    Counted in integers: float32 sums are exact only up to 16.7 million voxels.
    """
    total = int(prediction.sum()) + int(truth.sum())
    return 2 * int((prediction & truth).sum()) / total if total else 1.0


def hard_iou(prediction: Tensor, truth: Tensor) -> float:
    """``|A ∩ B| / |A ∪ B|`` of two bool masks of one shape; the same conventions. Equals ``D / (2 - D)``."""
    union = int((prediction | truth).sum())
    return int((prediction & truth).sum()) / union if union else 1.0
