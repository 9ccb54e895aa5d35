import math

import pytest
import torch

from fedmed.errors import FedMedError
from fedmed.systems.fixmatch.loss import annealed_cross_entropy, annealing_threshold, fixmatch_loss, uda_loss

WEAK, STRONG = torch.tensor([[2.0, 1, 0]]).double(), torch.tensor([[1.0, 1, 0]]).double()


@pytest.mark.parametrize(("threshold", "value"), [(0.25, 0.8619948041), (0.95, 0.0)])
def test_fixmatch_worked_out_by_hand(threshold, value):
    assert fixmatch_loss(WEAK, STRONG, threshold).item() == pytest.approx(value, abs=1e-6)


def test_uda_worked_out_by_hand():
    assert uda_loss(WEAK, STRONG, 0.5, 0.4).item() == pytest.approx(0.5636725467, abs=1e-6)
    assert uda_loss(WEAK, STRONG, 0.7, 0.4).item() == 0  # the unsharpened 0.665 decides


@pytest.mark.parametrize(("schedule", "value"), [("linear", 0.5833333), ("exp", 0.2350708), ("log", 0.9315958)])
def test_annealing_threshold_worked_out_by_hand(schedule, value):
    assert annealing_threshold(0.5, 6, schedule) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("loss", [fixmatch_loss, uda_loss])
def test_unsure_samples_count_as_zero_and_targets_are_constant(loss):
    weak = torch.cat([WEAK, WEAK * 0]).requires_grad_()
    strong = torch.cat([STRONG, STRONG]).requires_grad_()
    both = loss(weak, strong, 0.5)
    both.backward()
    assert both.item() == pytest.approx(loss(WEAK, STRONG, 0.5).item() / 2)
    assert weak.grad is None
    assert (strong.grad[1] == 0).all() and (strong.grad[0] != 0).any()


def test_annealed_cross_entropy_drops_what_is_known():
    logits = torch.tensor([[4.0, 0], [0.2, 0]]).double()
    labels = torch.tensor([0, 0])
    assert annealed_cross_entropy(logits, labels, 0.6).item() == pytest.approx(math.log(1 + math.exp(-0.2)))
    assert annealed_cross_entropy(logits, labels, 0.1).item() == 0


def test_errors():
    with pytest.raises(FedMedError, match="schedule is 'cosine'"):
        annealing_threshold(0.5, 6, "cosine")
    with pytest.raises(FedMedError, match="progress is 1.5"):
        annealing_threshold(1.5, 6)
    with pytest.raises(FedMedError, match="temperature is 0"):
        uda_loss(WEAK, STRONG, temperature=0)
