import math

import pytest
import torch

from fedmed.errors import FedMedError
from fedmed.systems.fedcy.loss import nt_xent


def of(rows, labels, temperature=0.1):
    return nt_xent(torch.tensor(rows, dtype=torch.float64), torch.tensor(labels), temperature).item()


def reference(rows, labels, temperature):
    unit = [row / row.norm() for row in rows]
    losses = []
    for a, anchor in enumerate(unit):
        negatives = sum(
            math.exp(float(anchor @ f) / temperature) for f, y in zip(unit, labels, strict=True) if y != labels[a]
        )
        for p, other in enumerate(unit):
            if p != a and labels[p] == labels[a]:
                top = math.exp(float(anchor @ other) / temperature)
                losses.append(-math.log(top / (top + negatives)))
    return sum(losses) / len(losses) if losses else 0.0


def test_one_positive_and_one_negative():
    near, far = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    assert of(near, [0, 0, 1]) == pytest.approx(4.5398899e-5, abs=1e-12)  # the same from both anchors
    # The second frame as an anchor has no negative near it, so the mean is over 10.0000454 and log(1 + 1).
    assert of(far, [0, 0, 1]) == pytest.approx((10.0000454 + math.log(2)) / 2, abs=1e-6)


def test_pairs_of_a_batch():
    rows = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
    assert of(rows, [1, 1, 2]) == pytest.approx((0.0024756851 + 2.1269280110) / 2, abs=1e-9)
    assert of([*rows, [0.8, 0.6]], [1, 1, 2, 1]) == pytest.approx(0.4112541579, abs=1e-9)


@pytest.mark.parametrize(("size", "classes", "dim"), [(2, 1, 3), (5, 2, 4), (16, 6, 8), (33, 3, 2), (7, 7, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_a_slow_reference(size, classes, dim, dtype):
    draw = torch.Generator().manual_seed(size)
    rows = torch.randn(size, dim, generator=draw, dtype=torch.float64)
    labels = torch.randint(classes, (size,), generator=draw)
    expected = reference(rows, labels.tolist(), 0.1)
    assert nt_xent(rows.to(dtype), labels).item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2]])  # no negative, no positive
def test_nothing_to_contrast_is_nothing_to_learn(labels):
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], requires_grad=True)
    loss = nt_xent(rows, torch.tensor(labels))
    loss.backward()
    assert loss.item() == 0 and torch.equal(rows.grad, torch.zeros(3, 2))


def test_one_class_moves_closer_and_scale_does_not_count():
    rows = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.3, 0.9]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1])
    closer = rows.clone()
    closer[1] = torch.tensor([0.8, 0.6])
    assert nt_xent(closer, labels) < nt_xent(rows, labels)
    scaled = rows * torch.tensor([[3.0], [0.1], [7.0], [1.0]])
    assert nt_xent(scaled, labels).item() == pytest.approx(nt_xent(rows, labels).item(), abs=1e-9)


def test_half_precision_is_computed_in_float32():
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(0)).half()
    loss, exact = (nt_xent(features, torch.arange(8) % 3) for features in (rows, rows.float()))
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(exact.item())


def test_errors():
    with pytest.raises(FedMedError, match="temperature is 0"):
        nt_xent(torch.rand(2, 2), torch.zeros(2), 0)
    with pytest.raises(FedMedError, match=r"\(2, 3\) and \(3,\)"):
        nt_xent(torch.rand(2, 3), torch.zeros(3))
