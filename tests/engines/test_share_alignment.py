import math

import pytest
import torch

from fedmed.engines.share_alignment import ShareAlignment


def test_one_batch_worked_out_by_hand():
    alignment = ShareAlignment(torch.tensor([0.9, 0.1]))
    p = torch.tensor([0.6, 0.7, 0.2, 0.1]).view(1, 1, 4)
    assert torch.allclose(alignment(p), p)  # as it is at first
    seen = 0.95 * 0.1 + 0.05 * 0.5
    change = 0.1 * (math.log(0.1 / seen) - math.log(0.9 / (1 - seen)))
    kept = alignment.state()
    assert kept["seen"].tolist() == pytest.approx([1 - seen, seen])
    assert kept["log_weights"].tolist() == pytest.approx([0, change])
    odds = 0.6 / 0.4 * math.exp(change)
    assert alignment(p)[0, 0, 0].item() == pytest.approx(odds / (1 + odds))


@pytest.mark.parametrize("wanted", [[0.99, 0.01], [0.5, 0.5], [0.2, 0.3, 0.5]])
def test_labels_get_the_shares_that_are_wanted(wanted):
    generator, alignment = torch.Generator().manual_seed(0), ShareAlignment(torch.tensor(wanted))
    for _ in range(400):
        logits = torch.randn(4, len(wanted), 500, generator=generator)
        drawn = alignment(logits.softmax(dim=1))
    named = drawn.argmax(dim=1).flatten()
    assert (torch.bincount(named, minlength=len(wanted)) / named.numel()).tolist() == pytest.approx(wanted, abs=0.03)


def test_a_class_that_is_not_named_gets_no_endless_weight():
    alignment = ShareAlignment(torch.tensor([0.5, 0.5]))
    for _ in range(200):
        drawn = alignment(torch.full((1, 1, 10), 1e-6))
    assert alignment.state()["log_weights"].tolist() == [0, 4] and drawn.max() < 1e-3


def test_it_goes_on_where_it_was():
    batches = [torch.rand(2, 3, 7, generator=torch.Generator().manual_seed(n)).softmax(dim=1) for n in range(6)]
    wanted = torch.tensor([0.6, 0.3, 0.1])
    whole, first, then = (ShareAlignment(wanted) for _ in range(3))
    expected = [whole(batch) for batch in batches][-1]
    for batch in batches[:3]:
        first(batch)
    then.restore(first.state())
    assert torch.equal([then(batch) for batch in batches[3:]][-1], expected)
    other = ShareAlignment(torch.tensor([0.5, 0.5]))
    other.restore(first.state())  # of another task: begins anew
    assert other.state()["log_weights"].tolist() == [0, 0]
