"""The threshold of training-signal annealing grows over the whole run."""

import math

import pytest
import torch

from fedmed.errors import FedMedError
from fedmed.systems.fixmatch.loss import AnnealedLoss

KNOWN, UNSURE = math.log(1 + math.exp(-2)), math.log(1 + math.exp(-0.2))  # true class at 0.881 and at 0.550
LOGITS, LABELS = torch.tensor([[2.0, 0], [0.2, 0]]).double(), torch.tensor([0, 0])


def test_more_counts_with_every_step():
    """Two classes, linear: thresholds 0.5, 0.625, 0.75, 0.875, 1 with each quarter of the run, and 1 after it."""
    loss = AnnealedLoss(2, "linear", total=4)
    losses = [loss(LOGITS, LABELS).item() for _ in range(6)]
    mean = (KNOWN + UNSURE) / 2
    assert losses == pytest.approx([0.0, UNSURE, UNSURE, UNSURE, mean, mean])


def test_it_goes_on_where_an_earlier_round_ended():
    whole = AnnealedLoss(2, "exp", total=8)
    losses = [whole(LOGITS, LABELS).item() for _ in range(8)]
    later = AnnealedLoss(2, "exp", before=5, total=8)
    assert [later(LOGITS, LABELS).item() for _ in range(3)] == losses[5:]


@pytest.mark.parametrize("values", [{"classes": 1}, {"before": -1}, {"total": 0}])
def test_numbers_out_of_range(values):
    with pytest.raises(FedMedError, match="at least 2 classes and 1 step"):
        AnnealedLoss(**{"classes": 2, "schedule": "log", **values})
