"""Agreement with helpers and votes, against numbers worked out by hand."""

import math

import pytest
import torch
import torch.nn.functional as F

from fedmed.systems.fixmatch.fedmatch import helper_divergence, helper_loss, vote

EVEN, HELPER = torch.zeros(1, 2).double(), torch.tensor([[[0.6, 0.4]]]).double()


def test_divergence_worked_out_by_hand():
    """.6 ln(.6 / .5) + .4 ln(.4 / .5)."""
    assert helper_divergence(EVEN, HELPER).item() == pytest.approx(0.0201355, abs=1e-7)
    two = torch.cat([HELPER, torch.tensor([[[0.5, 0.5]]]).double()])
    assert helper_divergence(EVEN, two).item() == pytest.approx(0.0201355 / 2, abs=1e-7), "the mean over helpers"
    assert helper_divergence(EVEN, HELPER[:0]).tolist() == [0.0]


def test_votes():
    """Own class 0 and two helpers' class 1: 1. Equal numbers: the first class. Nobody else: the own."""
    local = torch.tensor([[0.9, 0.1, 0.0]])
    ones, twos = torch.tensor([[[0.4, 0.6, 0.0]]]), torch.tensor([[[0.1, 0.2, 0.7]]])
    assert vote(local, torch.cat([ones, ones])).tolist() == [1]
    assert vote(local, torch.cat([twos, twos])).tolist() == [2]
    assert vote(local, torch.cat([ones, twos])).tolist() == [0]
    assert vote(local.flip(1), ones[:0]).tolist() == [2]


def test_the_loss_is_a_mean_over_what_counts():
    weak = torch.tensor([[1.0, 0.0], [0.0, 3.0]], requires_grad=True)
    strong = torch.tensor([[0.0, 0.0], [2.0, 0.0]], requires_grad=True)
    helpers, classes = torch.tensor([[[0.6, 0.4], [0.1, 0.9]]]), torch.tensor([1, 0])
    first = 0.5 * helper_divergence(weak, helpers)[0] + 2.0 * math.log(2)
    counts = torch.tensor([True, False])
    loss = helper_loss(weak, strong, helpers, classes, counts, 0.5, 2.0)
    assert loss.item() == pytest.approx(first.item())
    loss.backward()
    assert weak.grad[0].abs().max() > 0 and strong.grad[0].abs().max() > 0, "both views are trained"
    assert not weak.grad[1].any() and not strong.grad[1].any()
    both = helper_loss(weak, strong, helpers, classes, torch.tensor([True, True]), 0.5, 2.0)
    second = 0.5 * helper_divergence(weak, helpers)[1] + 2.0 * F.cross_entropy(strong[1:], classes[1:])
    assert both.item() == pytest.approx(((first + second) / 2).item())
    assert helper_loss(weak, strong, helpers, classes, torch.tensor([False, False]), 0.5, 2.0).item() == 0
