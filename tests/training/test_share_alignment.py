import math

import pytest
import torch

from fedmed.systems.agreement.engine import WINDOW, ShareAlignment


def test_one_batch_worked_out_by_hand():
    alignment = ShareAlignment(torch.tensor([0.75, 0.25]))
    p = torch.tensor([0.6, 0.7, 0.2, 0.1, 0.3]).view(1, 1, 5)
    weight = math.log(0.4 / 0.6)  # a quarter of five: the surest is named, and the next, at 0.6, is just not
    drawn = alignment(p)
    assert alignment.log_weights.tolist() == pytest.approx([0, weight])
    odds = 0.7 / 0.3 * math.exp(weight)
    assert drawn[0, 0, 1].item() == pytest.approx(odds / (1 + odds))
    assert (drawn > 0.5 + 1e-6).flatten().tolist() == [False, True, False, False, False]


@pytest.mark.parametrize("wanted", [[0.99, 0.01], [0.5, 0.5], [0.2, 0.3, 0.5]])
def test_labels_get_the_shares_that_are_wanted(wanted):
    generator, alignment = torch.Generator().manual_seed(0), ShareAlignment(torch.tensor(wanted))
    logits = torch.randn(4, len(wanted), 1000, generator=generator) + torch.arange(len(wanted)).view(1, -1, 1)
    named = alignment(logits.softmax(dim=1)).argmax(dim=1).flatten()
    assert (torch.bincount(named, minlength=len(wanted)) / named.numel()).tolist() == pytest.approx(wanted, abs=0.02)


def test_it_follows_a_model_that_changes_and_forgets_what_it_was():
    generator, alignment = torch.Generator().manual_seed(0), ShareAlignment(torch.tensor([0.9, 0.1]))
    for shift in (2.0, -2.0):
        for _ in range(WINDOW):
            drawn = alignment(torch.sigmoid(torch.randn(1, 1, 2000, generator=generator) + shift))
        assert (drawn > 0.5).float().mean().item() == pytest.approx(0.1, abs=0.02)


def test_a_class_that_is_not_known_gets_no_endless_weight():
    alignment = ShareAlignment(torch.tensor([0.5, 0.5]))
    drawn = alignment(torch.full((1, 1, 10), 1e-6))
    assert alignment.log_weights.tolist() == [0, 4] and drawn.max() < 1e-3


def test_it_remembers_no_more_than_some_voxels_of_a_batch():
    alignment = ShareAlignment(torch.tensor([0.5, 0.5]))
    p = torch.zeros(1, 1, 100, 100)
    p[..., 50:] = 1
    alignment.note(p)
    (kept,) = alignment._window
    assert kept.shape == (4096, 2)
    assert kept[:, 1].exp().mean().item() == pytest.approx(0.5, abs=0.02)
