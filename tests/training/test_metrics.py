import pytest
import torch
from monai.metrics import compute_dice

from fedmed.training.metrics import hard_dice, hard_iou


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.0, 0.5), (0.5, 0.0), (0.0, 0.0), (1.0, 1.0)])
def test_hard_dice_equals_monai(shares):
    torch.manual_seed(0)
    a, b = (torch.rand(1, 1, 9, 8, 7) < share for share in shares)
    dice = hard_dice(a, b)
    assert dice == pytest.approx(compute_dice(a.float(), b.float(), ignore_empty=False).item(), abs=1e-6)
    assert hard_iou(a, b) == pytest.approx(dice / (2 - dice))
