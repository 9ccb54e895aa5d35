"""Training on images without labels by the classes that the model itself is sure of."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedmed.training.unlabelled import PseudoLabelTrainer


class PseudoClassEngine(PseudoLabelTrainer):
    """The student's view of an image shall have the class that the model sees in the image as it came.

    A step in which no image counts is left out (ours): Adam would turn weight decay alone into steps of full size.
    BatchNorm's running statistics follow the student's views even then.

    Args:
        args, kwargs: as in :class:`PseudoLabelTrainer`. The inferer returns logits (B, C).
        class_loss: of (logits of the image, constant; logits of the student's view), such as
            :func:`fedmed.systems.fixmatch.loss.fixmatch_loss`.
        confidence: largest probability, 0 to 1, from which on an image counts; the loss has its own.

    ``engine.state.output`` also has the shares, 0 to 1, of images that count (``sure_fraction``), and of the most
    frequent class among all images of the batch (``commonest_fraction``): 1 where the model sees the same in all.
    """

    def __init__(
        self, *args: Any, class_loss: Callable[[Tensor, Tensor], Tensor], confidence: float, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.class_loss, self.confidence = class_loss, confidence
        self._counts = False

    def targets(self, images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits (B, C), and how sure they are."""
        logits = self.pseudo_label(images)
        sure, classes = logits.softmax(dim=1).max(dim=1)
        fraction = (sure >= self.confidence).float().mean()
        self._counts = bool(fraction > 0)
        return logits, {"sure_fraction": fraction, "commonest_fraction": classes.bincount().max() / len(classes)}

    def unlabelled_loss(self, q: Tensor, targets: Tensor) -> Tensor:
        """The loss of logits, in float32 whatever ``amp`` is."""
        return self.class_loss(targets, q.float())

    def step(self, optimizer: torch.optim.Optimizer, max_grad_norm: float | None = None) -> None:
        """As in :class:`StatefulTrainer`, where there is something to learn."""
        if self._counts or self.supervised_loss is not None:
            super().step(optimizer, max_grad_norm)
