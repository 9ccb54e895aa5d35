import pytest
import torch
from monai.losses import DiceLoss

from fedmed.errors import FedMedError
from fedmed.losses.dice import SoftDiceLoss, soft_dice_loss

Y = torch.tensor([1.0, 0, 1, 0], dtype=torch.float64).view(1, 1, 2, 2)
Q = torch.tensor([0.8, 0.2, 0.6, 0.4], dtype=torch.float64).view(1, 1, 2, 2)


def reference(q, y, squared, smooth_nr, smooth_dr):
    """One sample and channel at a time, one voxel at a time."""
    losses = []
    for sample_q, sample_y in zip(q, y, strict=True):
        for channel_q, channel_y in zip(sample_q, sample_y, strict=True):
            pairs = list(zip(channel_q.flatten().tolist(), channel_y.flatten().tolist(), strict=True))
            power = 2 if squared else 1
            sizes = sum(b**power for _, b in pairs) + sum(a**power for a, _ in pairs)
            losses.append(1 - (2 * sum(a * b for a, b in pairs) + smooth_nr) / (sizes + smooth_dr))
    return sum(losses) / len(losses)


@pytest.mark.parametrize(("squared", "value"), [(True, 0.125), (False, 0.3)])
def test_worked_out_by_hand(squared, value):
    assert SoftDiceLoss(squared=squared)(Q, Y).item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 3), (2, 1, 4, 3), (3, 2, 4, 3, 2), (1, 3, 1, 1, 5)])
@pytest.mark.parametrize("smooth", [(0.0, 1e-8), (1e-5, 1e-5)])
def test_equals_slow_reference_and_monai(squared, shape, smooth):
    torch.manual_seed(1)
    q, y = torch.rand(shape, dtype=torch.float64), (torch.rand(shape) > 0.4).double()
    ours = SoftDiceLoss(squared, *smooth)(q, y).item()
    assert ours == pytest.approx(reference(q, y, squared, *smooth), abs=1e-12)
    monai = DiceLoss(squared_pred=squared, smooth_nr=smooth[0], smooth_dr=smooth[1])(q, y).item()
    assert ours == pytest.approx(monai, abs=1e-12)


def test_batch_sums_over_samples():
    torch.manual_seed(2)
    q, y = torch.rand(3, 2, 4, 4), (torch.rand(3, 2, 4, 4) > 0.5).float()
    merged = [t.transpose(0, 1).flatten(1).unsqueeze(0) for t in (q, y)]
    assert torch.allclose(SoftDiceLoss(batch=True)(q, y), SoftDiceLoss()(*merged))
    assert soft_dice_loss(q, y, batch=True).shape == (2,) and soft_dice_loss(q, y).shape == (3, 2)


def test_empty_target_gives_constant_one_and_exactly_zero_gradient():
    q = torch.rand(2, 1, 4, 4, 4, requires_grad=True)
    loss = SoftDiceLoss()(q, torch.zeros_like(q))
    loss.backward()
    assert loss.item() == 1 and not q.grad.any()
    empty = torch.zeros(1, 1, 4, 4)
    assert SoftDiceLoss(smooth_nr=1e-5, smooth_dr=1e-5)(empty, empty).item() == 0, "both empty, equal smoothing"


def test_gradient_is_right():
    torch.manual_seed(3)
    q = torch.rand(2, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    y = (torch.rand(2, 1, 3, 3) > 0.5).double()
    assert torch.autograd.gradcheck(lambda x: SoftDiceLoss()(x, y), q)


def test_background_gradient_keeps_float32_accuracy():
    """A small lesion in a large patch: float32 must agree with float64 far better than to a per mille."""
    torch.manual_seed(0)
    q, y = torch.full((1, 1, 64, 64, 32), 0.5) + torch.randn(1, 1, 64, 64, 32) * 0.01, torch.zeros(1, 1, 64, 64, 32)
    y[..., :3, :3, :2] = 1
    grads = []
    for dtype in (torch.float32, torch.float64):
        x = q.detach().to(dtype, copy=True).requires_grad_()
        SoftDiceLoss()(x, y).backward()
        grads.append(x.grad.double()[y == 0])
    assert torch.allclose(*grads, rtol=1e-5, atol=0)


def test_half_precision_and_integer_masks():
    q = torch.full((1, 1, 64, 64, 32), 0.5, dtype=torch.float16)
    loss = SoftDiceLoss()(q, torch.ones(q.shape, dtype=torch.uint8))
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(1 - 2 * 0.5 / 1.25, abs=1e-6)


def test_errors_name_the_values():
    with pytest.raises(FedMedError, match=r"\(2, 2, 4\).*\(2, 1, 4\)"):
        SoftDiceLoss()(torch.rand(2, 2, 4), torch.rand(2, 1, 4))
    with pytest.raises(FedMedError, match="smooth_dr > 0, not"):
        SoftDiceLoss(smooth_dr=0)
