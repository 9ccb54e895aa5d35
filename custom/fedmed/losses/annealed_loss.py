"""Cross-entropy of labelled samples that the model does not know yet: UDA's training-signal annealing."""

from torch import Tensor, nn

from fedmed.errors import FedMedError
from fedmed.losses.pseudo_label import annealed_cross_entropy, annealing_threshold


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
