import numpy as np
import pytest
import torch
from monai.metrics import compute_dice

from fedmed.errors import FedMedError
from fedmed.training.metrics import f1_scores, hard_dice, hard_iou


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.0, 0.5), (0.5, 0.0), (0.0, 0.0), (1.0, 1.0)])
def test_hard_dice_equals_monai(shares):
    torch.manual_seed(0)
    a, b = (torch.rand(1, 1, 9, 8, 7) < share for share in shares)
    dice = hard_dice(a, b)
    assert dice == pytest.approx(compute_dice(a.float(), b.float(), ignore_empty=False).item(), abs=1e-6)
    assert hard_iou(a, b) == pytest.approx(dice / (2 - dice))


def test_overlap_worked_out_by_hand():
    a, b = torch.zeros(12, 12, dtype=torch.bool), torch.zeros(12, 12, dtype=torch.bool)
    a[2:6, 2:6] = True
    b[2:9, 2:6] = True
    assert hard_dice(a, b) == pytest.approx(0.7272727, abs=1e-6)
    assert hard_iou(a, b) == pytest.approx(0.5714286, abs=1e-6)


def test_f1_worked_out_by_hand():
    assert f1_scores([8], [2], [4]).item() == pytest.approx(0.7272727, abs=1e-6)


def test_absent_labels():
    assert f1_scores([0, 1], [0, 0], [0, 0]).tolist() == [0, 1]
    skipped = f1_scores([0, 1], [0, 0], [0, 0], absent="skip")
    assert np.isnan(skipped[0]) and np.nanmean(skipped) == 1
    with pytest.raises(FedMedError, match="absent is 'one'"):
        f1_scores([1], [1], [1], absent="one")
