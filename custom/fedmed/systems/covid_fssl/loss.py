"""Consistency with a pseudo-label (Yang et al. 2021, Eq. 4-6 and Table 2)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedmed.errors import FedMedError
from fedmed.losses.dice import soft_dice_loss

KINDS = ("l1", "l2", "ce", "dice_hard", "dice_soft")
SCOPES = ("whole", "foreground", "two_sided")


class ConsistencyLoss(nn.Module):
    """Distance between the student's prediction and the pseudo-label, over a region where the model is confident.

    The target is the pseudo-label ``p > 0.5`` (Eq. 4), for ``dice_soft`` the probability ``p`` itself. The paper's
    default is ``dice_hard`` over the region of Eq. 6 with threshold 0.90.

    Each sample of a batch is scored over its own region; the loss is the mean over all samples. A sample whose
    region is empty counts as 0, with zero gradient, so how strongly one patch is learned does not depend on the
    other patches of its batch.

    Args:
        kind: ``l1``, ``l2`` and ``ce`` are means over the region; ``dice_hard`` and ``dice_soft`` are the squared
            soft Dice of the region.
        scope: the region. ``whole`` = every voxel (the threshold is not used); two readings of Eq. 6: ``foreground`` =
            voxels with ``p > threshold``; ``two_sided`` = voxels with ``max(p, 1 - p) > threshold``, which keeps the
            confident background as well.
        threshold: τ in [0.5, 1]. At 1 no voxel is confident: the loss and its gradient are 0.

    Raises:
        FedMedError: an unknown kind or scope, or a threshold outside [0.5, 1].
    """

    def __init__(self, kind: str = "dice_hard", scope: str = "foreground", threshold: float = 0.9) -> None:
        super().__init__()
        if kind not in KINDS:
            raise FedMedError(f"ConsistencyLoss: kind is {kind!r}; use one of {', '.join(KINDS)}")
        if scope not in SCOPES:
            raise FedMedError(f"ConsistencyLoss: scope is {scope!r}; use one of {', '.join(SCOPES)}")
        if not 0.5 <= threshold <= 1:
            raise FedMedError(
                f"ConsistencyLoss: threshold is {threshold}; it is a probability of being right, so use a number "
                "from 0.5 to 1, such as the paper's 0.9"
            )
        self.kind, self.scope, self.threshold = kind, scope, threshold

    def region(self, p: Tensor) -> Tensor:
        """Voxels that the loss looks at: bool, the shape of ``p``."""
        if self.scope == "whole":
            return torch.ones_like(p, dtype=torch.bool)
        confidence = p if self.scope == "foreground" else torch.maximum(p, 1 - p)
        return confidence > self.threshold

    def forward(self, p: Tensor, q: Tensor) -> Tensor:
        """Return the scalar loss.

        Args:
            p: the model's foreground probability of the patch as it is, in [0, 1], shape (B, 1, ...). A constant:
                no gradient flows into it.
            q: the same of the changed patch, from the pass that is trained.

        Raises:
            FedMedError: shapes differ, or there is more than one channel.
        """
        if p.shape != q.shape or p.ndim < 3 or p.shape[1] != 1:
            raise FedMedError(
                f"ConsistencyLoss: p has shape {tuple(p.shape)}, q {tuple(q.shape)}; give foreground probabilities "
                "of shape (B, 1, ...), not two-channel outputs: the engine's inferer must make them"
            )
        p, q = (t if t.dtype == torch.float64 else t.float() for t in (p.detach(), q))
        inside = self.region(p).to(q.dtype)
        target = p if self.kind == "dice_soft" else (p > 0.5).to(q.dtype)
        if self.kind.startswith("dice"):
            # Voxels that are multiplied by zero add nothing to any sum: this is the Dice over the region only.
            scores = soft_dice_loss(q * inside, target * inside)
            return (scores * (inside.flatten(2).amax(2))).mean()
        voxels = list(range(1, q.ndim))
        return ((self._distance(target, q) * inside).sum(voxels) / inside.sum(voxels).clamp(min=1)).mean()

    def _distance(self, target: Tensor, q: Tensor) -> Tensor:
        if self.kind == "l1":
            return (target - q).abs()
        if self.kind == "l2":
            return (target - q).square()
        # On probabilities PyTorch refuses this under autocast, because half precision would lose log(1 - q); here
        # everything is float32. It clamps the logarithm at -100, so a saturated q gives no infinity.
        with torch.autocast(q.device.type, enabled=False):
            return F.binary_cross_entropy(q, target, reduction="none")
