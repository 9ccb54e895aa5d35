"""Cross-entropy and the size of the probabilities, with numbers worked out by hand."""

import math

import pytest
import torch
import torch.nn.functional as F

from fedmed.errors import FedMedError
from fedmed.systems.fedld.loss import MarginControl

P, LABELS = torch.tensor([[0.7, 0.3], [0.5, 0.5]], dtype=torch.float64), torch.tensor([0, 1])


def test_two_images():
    """Cross-entropy 0.5249111; Σ p² = 0.58 and 0.5: log(1 + 1.08) over all of them, log(1 + 0.54) as a mean."""
    cross, whole, mean = 0.5249111, 0.7323679, 0.4317824
    assert MarginControl(weight=0)(P.log(), LABELS).item() == pytest.approx(cross, abs=1e-6)
    assert MarginControl(whole_batch=True)(P.log(), LABELS).item() == pytest.approx(0.5981479, abs=1e-6)
    assert MarginControl()(P.log(), LABELS).item() == pytest.approx(cross + 0.1 * mean, abs=1e-6)
    assert whole == pytest.approx(math.log(2.08), abs=1e-6) and mean == pytest.approx(math.log(1.54), abs=1e-6)


def test_pixels_count_as_images():
    """The same two predictions, side by side in one image or as two."""
    image = P.log().T[None, :, None, :]
    for labels in (LABELS[None, None], LABELS[None, None, None]):
        assert MarginControl()(image, labels).item() == pytest.approx(0.5249111 + 0.04317824, abs=1e-6)


def test_it_adds_to_any_loss_and_draws_sure_predictions_back():
    logits = torch.tensor([[4.0, 0.0]], requires_grad=True)
    MarginControl(lambda logits, labels: 0 * logits.sum(), weight=1.0)(logits, LABELS[:1]).backward()
    assert logits.grad[0, 0] > 0 > logits.grad[0, 1]
    assert MarginControl(F.cross_entropy, 0.0)(logits.half(), LABELS[:1]).isfinite()


def test_a_weight_below_zero():
    with pytest.raises(FedMedError, match="'weight' is -1"):
        MarginControl(weight=-1)
