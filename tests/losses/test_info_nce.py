import math

import pytest
import torch

from fedmed.errors import FedMedError
from fedmed.systems.fedmoco.loss import info_nce


def test_worked_out_by_hand():
    positive, negatives = torch.tensor([0.9]).double(), torch.tensor([[0.2, 0.5]]).double()
    assert info_nce(positive, negatives, 0.2).item() == pytest.approx(0.1531782071, abs=1e-6)


def test_equal_similarities():
    loss = info_nce(torch.full((3,), 0.4).double(), torch.full((3, 1024), 0.4).double(), 0.07)
    assert loss.item() == pytest.approx(6.9324478916, abs=1e-6)


@pytest.mark.parametrize(("batch", "count"), [(1, 1), (4, 7), (16, 3)])
def test_equals_slow_reference(batch, count):
    torch.manual_seed(0)
    positive, negatives = torch.rand(batch).double(), torch.rand(batch, count).double()
    losses = []
    for near, others in zip(positive.tolist(), negatives.tolist(), strict=True):
        top = math.exp(near / 0.2)
        losses.append(-math.log(top / (top + sum(math.exp(s / 0.2) for s in others))))
    assert info_nce(positive, negatives, 0.2).item() == pytest.approx(sum(losses) / batch, abs=1e-9)


def test_errors():
    with pytest.raises(FedMedError, match="temperature is 0"):
        info_nce(torch.rand(2), torch.rand(2, 3), 0)
    with pytest.raises(FedMedError, match=r"\(2,\) and \(3, 3\)"):
        info_nce(torch.rand(2), torch.rand(3, 3), 1)
