"""Cross entropy with Dice of several classes, against numbers worked out by hand."""

import pytest
import torch

from fedmed.errors import FedMedError
from fedmed.losses.cross_entropy_dice import CrossEntropyDice


def case():
    """Four pixels, two classes: logits whose softmax are round numbers, (1, 2, 2, 2)."""
    probabilities = torch.tensor([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.1, 0.9]], dtype=torch.float64)
    return probabilities.log().T.reshape(1, 2, 2, 2).requires_grad_(), torch.tensor([[[0, 1], [1, 1]]])


def test_the_equation():
    logits, truth = case()
    assert CrossEntropyDice(0.0)(logits, truth).item() == pytest.approx(0.4003674357, rel=1e-6)
    dice = (CrossEntropyDice(1.0)(logits, truth) - CrossEntropyDice(0.0)(logits, truth)).item()
    # 1 - 2 · 0.8 / (1.8 + 1) and 1 - 2 · 2 / (2.2 + 3)
    assert dice == pytest.approx((0.4285714 + 0.2307692) / 2, abs=1e-6)
    assert CrossEntropyDice()(logits, truth).item() == pytest.approx(0.4992685346, rel=1e-6)
    assert torch.equal(CrossEntropyDice()(logits, truth), CrossEntropyDice()(logits, truth[:, None]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_class_that_no_pixel_has_adds_a_constant(dtype):
    """The third class alone: a gradient only by the cross entropy."""
    logits = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    truth = torch.randint(0, 2, (2, 4, 5), generator=torch.Generator().manual_seed(1))
    loss = CrossEntropyDice(0.3)(logits, truth)
    assert loss.dtype == torch.float32 and loss.isfinite()
    loss.backward()
    assert logits.grad is not None and logits.grad.isfinite().all()
    first = logits.detach().float().softmax(1)
    parts = []
    for label in range(3):
        p, y = first[:, label], (truth == label).float()
        parts.append(1 - 2 * (p * y).sum() / (p.sum() + y.sum()))
    assert parts[2] == 1
    plain = torch.nn.functional.cross_entropy(logits.detach().float(), truth)
    assert loss.item() == pytest.approx((plain + 0.3 * sum(parts) / 3).item(), rel=1e-5)


def test_dice_of_each_frame_by_itself():
    """Two frames of one class each: together both classes are there, in a frame alone one of them is missing."""
    logits = torch.zeros(2, 2, 1, 2)
    truth = torch.tensor([[[0, 0]], [[1, 1]]])
    together, alone = (CrossEntropyDice(1.0, batch)(logits, truth) - 0.6931472 for batch in (True, False))
    assert together.item() == pytest.approx(1 - 2 * 1 / (2 + 2), abs=1e-6)
    assert alone.item() == pytest.approx((1 - 2 * 1 / (2 + 1) + 1) / 2, abs=1e-6), "1/3 where it is, 1 where it is not"


def test_what_is_refused():
    logits, truth = case()
    with pytest.raises(FedMedError, match="dice_weight"):
        CrossEntropyDice(-0.1)
    for wrong in (truth.float(), truth[:, :1], truth.repeat(2, 1, 1)):
        with pytest.raises(FedMedError, match="whole numbers"):
            CrossEntropyDice()(logits, wrong)
