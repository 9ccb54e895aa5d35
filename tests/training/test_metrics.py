import math

import numpy as np
import pytest
import torch
from monai.metrics import compute_average_surface_distance, compute_dice, compute_hausdorff_distance

from fedmed.errors import FedMedError
from fedmed.training.metrics import hard_dice, hard_iou, islands, mask_distances, surface_distances


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.0, 0.5), (0.5, 0.0), (0.0, 0.0), (1.0, 1.0)])
def test_hard_dice_equals_monai(shares):
    torch.manual_seed(0)
    a, b = (torch.rand(1, 1, 9, 8, 7) < share for share in shares)
    dice = hard_dice(a, b)
    assert dice == pytest.approx(compute_dice(a.float(), b.float(), ignore_empty=False).item(), abs=1e-6)
    assert hard_iou(a, b) == pytest.approx(dice / (2 - dice))


def test_square_and_square_with_a_spike():
    a = np.zeros((40, 40), bool)
    a[5:15, 5:15] = True
    b = a.copy()
    b[15:20, 10] = True
    there, back = surface_distances(a, b)
    assert (len(there), len(back)) == (36, 40)
    assert max(there.max(), back.max()) == 5
    assert (there.mean() + back.mean()) / 2 == pytest.approx(0.2013889, abs=1e-6)
    assert max(np.percentile(distances, 95) for distances in (there, back)) == pytest.approx(3.05, abs=1e-6)
    assert mask_distances(a, b) == pytest.approx((1.25, 0.2105263), abs=1e-6)


@pytest.mark.parametrize("spacing", [None, (0.8, 0.8, 5.0)])
def test_equals_monai_in_three_dimensions(spacing):
    rng = np.random.default_rng(0)
    a, b = (np.pad(rng.random((8, 9, 7)) > 0.7, 2) for _ in range(2))
    tensors = [torch.from_numpy(mask)[None, None].float() for mask in (a, b)]
    monai = compute_hausdorff_distance(*tensors, include_background=True, percentile=95, spacing=spacing)
    directed = [np.percentile(distances, 95) for distances in surface_distances(a, b, spacing)]
    assert max(directed) == pytest.approx(monai.item(), rel=1e-5)
    monai = compute_average_surface_distance(*tensors, include_background=True, symmetric=True, spacing=spacing)
    assert mask_distances(a, b, spacing)[1] == pytest.approx(monai.item(), rel=1e-5)


def test_empty_masks():
    full, empty = np.ones((3, 4), bool), np.zeros((3, 4), bool)
    assert mask_distances(full, empty) == (5, 5)
    assert mask_distances(empty, full, (2, 2)) == (10, 10)
    assert all(map(math.isnan, mask_distances(empty, empty)))
    with pytest.raises(FedMedError, match=r"\(2, 2\) and \(2, 3\)"):
        mask_distances(np.ones((2, 2)), np.ones((2, 3)))


def test_islands_are_parts_far_from_all_of_the_truth():
    """Voxels of 1 × 1 × 5 mm: one part touches the truth, one is near it, two are far, joined by a corner or alone."""
    truth, prediction = np.zeros((2, 40, 20, 8), bool)
    truth[5:10, 5:10, 2] = True
    prediction[5:9, 5:10, 2] = True
    prediction[18, 5, 2] = True  # 9 mm from it
    prediction[30, 5, 2] = prediction[31, 6, 3] = True  # 21 mm
    prediction[7, 7, 5] = True  # 15 mm
    assert islands(truth, prediction, (1, 1, 5)) == (2, 3)
    assert islands(truth, prediction, (1, 1, 1)) == (1, 2)
    assert islands(truth, prediction, (1, 1, 5), apart=5.0) == (3, 4)


def test_islands_of_empty_masks():
    one, none = np.zeros((2, 6, 6), bool)
    one[1, 1] = one[4, 4] = True
    assert islands(none, one) == (2, 2), "where nothing is true every part is one"
    assert islands(one, none) == islands(none, none) == islands(one, one) == (0, 0)
