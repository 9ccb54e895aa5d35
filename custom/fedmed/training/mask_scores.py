"""Scores of a mask of several classes: overlap and surface distances of each class, and their means."""

import numpy as np
import torch
from numpy.typing import NDArray

from fedmed.training.label_counts import macro
from fedmed.training.metrics import hard_dice, hard_iou
from fedmed.training.surface_distance import MEAN, PERCENTILE, reduced

OVERLAPS, DISTANCES = ("dice", "iou"), ("hd95", "assd")
SCORES = (*OVERLAPS, *DISTANCES)
POOLED = [PERCENTILE["pooled"], MEAN["pooled"]]  # of DISTANCES
Scores = NDArray[np.float64]


def class_scores(truth: NDArray[np.uint8], called: NDArray[np.uint8], classes: int, distances: bool = True) -> Scores:
    """Dice, IoU, HD95 and ASSD of each class of a mask (Fang et al. 2025).

    Args:
        truth, called: (H, W), 0 where there is nothing, 1 … ``classes``.
        classes: how many there are beside 0.
        distances: whether the last two are computed, which takes most of the time; NaN otherwise.

    Returns:
        float64 (classes, 4), distances in pixels. A class in one of both has overlap 0 and the image's diagonal as its
        distances; one that is in neither has NaN throughout.
    """
    found = np.full((classes, len(SCORES)), np.nan)
    for place in range(classes):
        a, b = truth == place + 1, called == place + 1
        if not a.any() and not b.any():
            continue
        masks = torch.from_numpy(a), torch.from_numpy(b)
        found[place, :2] = hard_dice(*masks), hard_iou(*masks)
        if distances:
            found[place, 2:] = reduced(a, b, None, POOLED)
    return found


def frame_scores(of_classes: Scores) -> Scores:
    """(T, 4) means over the classes that occur in truth or prediction, of (T, classes, 4).

    Where none does, nothing was there and nothing was called: the overlaps are 1, and there are no distances (NaN).
    """
    means = known_means(of_classes, 1)
    means[:, :2] = np.nan_to_num(means[:, :2], nan=1.0)
    return means


def known_means(values: Scores, axis: int) -> Scores:
    """Means of what is a number along an axis; NaN where nothing is."""
    return np.apply_along_axis(macro, axis, values)
