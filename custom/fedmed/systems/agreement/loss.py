"""Learning from the voxels on whose class two models agree (after Zhang et al. 2023, IEEE TMI)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedmed.errors import FedMedError
from fedmed.losses.dice import soft_dice_loss


def all_classes(p: Tensor) -> Tensor:
    """Probabilities (B, C, ...) of all classes; a single channel is that of class 1 of two."""
    return torch.cat([1 - p, p], dim=1) if p.shape[1] == 1 else p


def likeliest(p: Tensor) -> Tensor:
    """The class with the highest probability, the first of equals: (B, ...) of (B, C, ...)."""
    return p.max(dim=1).indices  # argmax along this axis takes 15 times as long on a CPU


def agreed(local: Tensor, labelled: Tensor, gate: Sequence[float] | Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Find where two models name the same class, and both together are sure enough of it.

    Args:
        local, labelled: probabilities (B, C, ...), or (B, 1, ...) of class 1 of two.
        gate: for each class the least mean probability with which a voxel counts, (C,) in [0, 1], or (1,) for all
            classes; None: all count.

    Returns:
        The mean of both, (B, C, ...), and whether the voxel counts (B, ...), bool: where it does, the class that both
        name is also the first of the mean.

    Raises:
        FedMedError: shapes differ, or the gate is not one of these classes.
    """
    if local.shape != labelled.shape:
        raise FedMedError(f"the two models' predictions have the shapes {tuple(local.shape)}, {tuple(labelled.shape)}")
    local, labelled = all_classes(local), all_classes(labelled)
    p, label = (local + labelled).mul_(0.5), likeliest(local)
    counts = label == likeliest(labelled)
    if gate is None:
        return p, counts
    least = torch.as_tensor(gate, dtype=p.dtype, device=p.device)
    if least.shape == (1,):
        least = least.expand(p.shape[1])
    if least.shape != (p.shape[1],):
        raise FedMedError(f"the gate has {least.numel()} numbers for {p.shape[1]} classes")
    return p, counts & (p.gather(1, label.unsqueeze(1)).squeeze(1) >= least[label])


def reweighed(p: Tensor, weights: Tensor) -> Tensor:
    """Probabilities with each class multiplied by its weight; the classes of a voxel sum to 1 again.

    Args:
        p: probabilities (B, C, ...), or (B, 1, ...) of class 1 of two; the result has the same shape.
        weights: a positive number for each class, (C,).

    Raises:
        FedMedError: there are not as many weights as classes.
    """
    every = all_classes(p)
    if weights.shape != every.shape[1:2]:
        raise FedMedError(f"{len(weights)} weights of classes for {every.shape[1]} classes")
    drawn = every * weights.to(every).view(1, -1, *[1] * (p.ndim - 2))
    drawn = drawn / drawn.sum(dim=1, keepdim=True).clamp_min(1e-12)
    return drawn[:, 1:] if p.shape[1] == 1 else drawn


class SquaredAgreementLoss(nn.Module):
    """Squared distance of the student's probabilities to the mean of both models', over the voxels that count.

    The loss of Mean Teacher (Tarvainen and Valpola 2017, arXiv 1703.01780). It learns how sure the two models are, too,
    so what they are not sure of does not become a class.

    Args:
        everywhere: every voxel counts, also where the two models name different classes.

    With no voxel that counts the loss is 0, and so is its gradient.
    """

    def __init__(self, everywhere: bool = False) -> None:
        super().__init__()
        self.everywhere = everywhere

    def forward(self, q: Tensor, p: Tensor, counts: Tensor) -> Tensor:
        """Return the scalar loss, 0 to 2; arguments as in :class:`AgreementLoss`."""
        q = all_classes(q if q.dtype == torch.float64 else q.float())
        squared = (q - p).square().sum(dim=1)
        return squared.mean() if self.everywhere else (squared * counts).sum() / counts.sum().clamp_min(1)


class AgreementLoss(nn.Module):
    """Cross-entropy and soft Dice of the student, over the voxels that count and no others.

    Args:
        balance: weigh the cross-entropy of each class so that all classes in a batch count alike (ours); otherwise
            every voxel counts alike.
        dice: add the mean soft Dice loss (squared denominator) of those classes but the first that count somewhere.

    With no voxel that counts the loss is 0, and so is its gradient.
    """

    def __init__(self, balance: bool = False, dice: bool = True) -> None:
        super().__init__()
        self.balance, self.dice = balance, dice

    def forward(self, q: Tensor, p: Tensor, counts: Tensor) -> Tensor:
        """Return the scalar loss.

        Args:
            q: the student's probabilities (B, C, ...), or (B, 1, ...) of class 1 of two.
            p: mean probabilities (B, C, ...) of both models; the likeliest class is the target.
            counts: whether a voxel counts (B, ...), bool.
        """
        q = all_classes(q if q.dtype == torch.float64 else q.float())
        log_q = q.clamp_min(1e-7).log()
        target = F.one_hot(likeliest(p), q.shape[1]).movedim(-1, 1).to(q.dtype) * counts.unsqueeze(1)
        sizes = target.sum(dim=[0, *range(2, q.ndim)])  # (C,)
        present = sizes > 0
        if self.balance:  # weights of all voxels that count sum to 1, or are all 0
            weights = torch.where(present, 1 / (sizes.clamp_min(1) * present.sum().clamp_min(1)), 0.0)
        else:
            weights = torch.ones_like(sizes) / sizes.sum().clamp_min(1)
        loss = -(weights.view(1, -1, *[1] * (q.ndim - 2)) * target * log_q).sum()
        if self.dice:
            inside = q[:, 1:] * counts.unsqueeze(1)
            per_class = soft_dice_loss(inside, target[:, 1:], batch=True) * present[1:]
            loss = loss + per_class.sum() / present[1:].sum().clamp_min(1)
        return loss


def build_agreement_loss(
    learned: str, everywhere: bool = False, balance: bool = False, dice: bool = True
) -> SquaredAgreementLoss | AgreementLoss:
    """The loss of what the student learns, ``probabilities`` or ``classes``; a FedMedError for anything else."""
    if learned not in ("probabilities", "classes"):
        raise FedMedError(f"'learned' is '{learned}'; it must be 'probabilities' or 'classes'")
    return SquaredAgreementLoss(everywhere) if learned == "probabilities" else AgreementLoss(balance, dice)
