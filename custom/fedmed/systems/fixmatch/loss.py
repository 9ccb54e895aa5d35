"""Losses of pseudo-labels, and a loss of labels in which sure examples count later."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedmed.errors import FedMedError

GROWTHS: dict[str, Callable[[float], float]] = {  # of a threshold with the progress of training
    "linear": lambda progress: progress,
    "exp": lambda progress: math.exp(5 * (progress - 1)),
    "log": lambda progress: 1 - math.exp(-5 * progress),
}


def fixmatch_loss(weak: Tensor, strong: Tensor, threshold: float = 0.95) -> Tensor:
    """``1[max p_w >= τ] · CE(argmax p_w, p_s)``, mean over the whole batch: an uncertain sample counts as 0.

    Args:
        weak: logits (B, C) of the weakly augmented samples; constant.
        strong: logits (B, C) of the strongly augmented ones.
        threshold: τ in [0, 1].
    """
    confidence, label = weak.detach().softmax(dim=1).max(dim=1)
    return (F.cross_entropy(strong, label, reduction="none") * (confidence >= threshold)).mean()


def uda_loss(weak: Tensor, strong: Tensor, threshold: float = 0.8, temperature: float = 0.4) -> Tensor:
    """``1[max p_w > β] · KL(softmax(z_w / T) || p_s)``, mean over the whole batch.

    Args:
        weak: logits (B, C) of the original samples; constant.
        strong: logits (B, C) of the augmented ones.
        threshold: β in [0, 1], compared with the unsharpened probability.
        temperature: T > 0; below 1 the target is sharpened.
    """
    if temperature <= 0:
        raise FedMedError(f"UDA: temperature is {temperature}; use a positive number, such as 0.4")
    weak = weak.detach()
    divergence = F.kl_div(
        strong.log_softmax(dim=1), (weak / temperature).log_softmax(dim=1), reduction="none", log_target=True
    ).sum(dim=1)
    return (divergence * (weak.softmax(dim=1).amax(dim=1) > threshold)).mean()


def annealing_threshold(progress: float, classes: int, schedule: str = "linear") -> float:
    """UDA's training-signal annealing: ``η = a (1 - 1/C) + 1/C``.

    Args:
        progress: t / T in [0, 1].
        classes: C.
        schedule: ``linear`` (a = t/T), ``exp`` (e^(5 (t/T - 1))) or ``log`` (1 - e^(-5 t/T)).

    Raises:
        FedMedError: an unknown schedule, or progress outside [0, 1].
    """
    if not 0 <= progress <= 1:
        raise FedMedError(f"training-signal annealing: progress is {progress}; give t / T from 0 to 1")
    if schedule not in GROWTHS:
        raise FedMedError(f"training-signal annealing: schedule is {schedule!r}; use one of {', '.join(GROWTHS)}")
    return GROWTHS[schedule](progress) * (1 - 1 / classes) + 1 / classes


def annealed_cross_entropy(logits: Tensor, labels: Tensor, threshold: float) -> Tensor:
    """Cross-entropy of labelled samples (B, C), (B,) without those whose true class is already certain.

    Mean over the samples that are kept (true-class probability at most ``threshold``); 0 when there is none.
    """
    losses = F.cross_entropy(logits, labels, reduction="none")
    kept = torch.exp(-losses.detach()) <= threshold
    return (losses * kept).sum() / kept.sum().clamp(min=1)


class AnnealedLoss(nn.Module):
    """:func:`annealed_cross_entropy` whose threshold grows with every call, over all rounds (arXiv 1904.12848).

    Args:
        classes: C.
        schedule: see :func:`annealing_threshold`.
        before: steps before the first call, of earlier rounds.
        total: steps of the whole run, at least 1; beyond them all samples count.

    Raises:
        FedMedError: a number outside its range.
    """

    def __init__(self, classes: int, schedule: str, before: int = 0, total: int = 1) -> None:
        super().__init__()
        if classes < 2 or before < 0 or total < 1:
            given = f"{classes} classes, {before} of {total} steps"
            raise FedMedError(f"training-signal annealing: {given}; use at least 2 classes and 1 step")
        self.classes, self.schedule, self.done, self.total = classes, schedule, before, total

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of logits (B, C) and classes (B,)."""
        progress = min(1.0, self.done / self.total)
        self.done += 1
        return annealed_cross_entropy(logits, labels, annealing_threshold(progress, self.classes, self.schedule))
