"""Soft Dice (Milletari et al., 3DV 2016; Yang et al. 2021, Eq. 1)."""

from functools import partial

import torch
from torch import Tensor, nn

from fedmed.errors import FedMedError


def soft_dice_loss(
    q: Tensor, y: Tensor, *, squared: bool = True, smooth_nr: float = 0.0, smooth_dr: float = 1e-8, batch: bool = False
) -> Tensor:
    """Soft Dice of every sample and channel.

    ``1 - (2 Σ y q + smooth_nr) / (Σ y² + Σ q² + smooth_dr)``, sums over the voxels of one sample and channel.

    The sums are computed as the equation writes them. ``monai.losses.DiceLoss(squared_pred=True)`` computes ``Σ y q``
    as ``(|y|² + |q|² - |y - q|²) / 2``: equal in exact arithmetic, but in float32 with a small lesion in a large patch
    the gradient of its background voxels is wrong by up to 0.3 %.

    Args:
        q: prediction, probabilities in [0, 1], shape (B, C, ...).
        y: target in [0, 1], hard or soft, any dtype, same shape.
        squared: square the terms of the denominator (the paper's form).
        smooth_nr: added to the numerator; 0 lets the loss of an empty target be exactly 1, with zero gradient.
        smooth_dr: added to the denominator.
        batch: sum over the samples too.

    Returns:
        Losses in [0, 1], shape (B, C), or (C,) when ``batch``; at least float32.

    Raises:
        FedMedError: shapes differ.
    """
    if q.shape != y.shape:
        raise FedMedError(f"Dice: prediction {tuple(q.shape)}, target {tuple(y.shape)}; give both as (B, C, ...)")
    q = q if q.dtype == torch.float64 else q.float()  # float16 overflows at 65504 voxels
    y = y.to(q.dtype)
    voxels = [0, *range(2, q.ndim)] if batch else list(range(2, q.ndim))
    overlap = (y * q).sum(voxels)
    sizes = (y * y).sum(voxels) + (q * q).sum(voxels) if squared else y.sum(voxels) + q.sum(voxels)
    return 1 - (2 * overlap + smooth_nr) / (sizes + smooth_dr)


class SoftDiceLoss(nn.Module):
    """Mean soft Dice over samples and channels; see :func:`soft_dice_loss`.

    With an empty target and ``smooth_nr=0`` the loss is the constant 1 and its gradient exactly zero: it cannot
    suppress false positives on such a sample.

    Args:
        squared, smooth_nr, smooth_dr, batch: as in :func:`soft_dice_loss`.

    Raises:
        FedMedError: a smoothing term is negative, or the denominator could be zero.
    """

    def __init__(
        self, squared: bool = True, smooth_nr: float = 0.0, smooth_dr: float = 1e-8, batch: bool = False
    ) -> None:
        super().__init__()
        if smooth_nr < 0 or smooth_dr <= 0:
            raise FedMedError(f"SoftDiceLoss: use smooth_nr >= 0, not {smooth_nr}, and smooth_dr > 0, not {smooth_dr}")
        self.loss = partial(soft_dice_loss, squared=squared, smooth_nr=smooth_nr, smooth_dr=smooth_dr, batch=batch)

    def forward(self, q: Tensor, y: Tensor) -> Tensor:
        """Return the scalar loss of probabilities ``q`` against targets ``y``, both (B, C, ...)."""
        return self.loss(q, y).mean()
