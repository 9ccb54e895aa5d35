import pytest
import torch

from fedmed.systems.agreement.labelled_sites import BINS, LabelConfidence


def test_quantiles_worked_out_by_hand():
    """Right are 0.9, 0.8, 0.7 and 0.6 of class 1, and 0.95 and 0.75 of class 0."""
    p = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.99, 0.05, 0.25, 0.3]).view(1, 1, 8)
    y = torch.tensor([1, 1, 1, 1, 0, 0, 0, 1]).view(1, 1, 8)
    counter = LabelConfidence()
    counter.count(p, y)
    assert counter.quantiles(0.5).tolist() == pytest.approx([0.75, 0.7], abs=1.5 / BINS)
    assert counter.quantiles(0.9).tolist() == pytest.approx([0.95, 0.9], abs=1.5 / BINS)
    assert counter.quantiles(0.1).tolist() == pytest.approx([0.75, 0.6], abs=1.5 / BINS)


def test_batches_add_up_and_a_class_that_was_never_right_lets_all_count():
    first, second = torch.tensor([[0.8, 0.1, 0.1]]), torch.tensor([[0.6, 0.3, 0.1]])
    counter = LabelConfidence()
    counter.count(first, torch.tensor([[0]]))
    counter.count(second, torch.tensor([[1]]))  # wrong
    assert counter.quantiles(0.5).tolist() == pytest.approx([0.8, 0, 0], abs=1.5 / BINS)


def test_logits():
    logits = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    counter = LabelConfidence()
    counter.count(logits, torch.tensor([[0], [1]]))
    expected = [logits.softmax(1)[0, 0].item(), logits.softmax(1)[1, 1].item()]
    assert counter.quantiles(1.0).tolist() == pytest.approx(expected, abs=1.5 / BINS)


def test_nothing_counted():
    assert LabelConfidence().quantiles(0.5) is None
