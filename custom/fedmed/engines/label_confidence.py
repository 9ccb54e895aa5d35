"""How sure a model is of the voxels, or images, that it gets right."""

from typing import Any

import torch
from ignite.engine import Engine
from monai.engines.utils import IterationEvents
from torch import Tensor

from fedmed.engines.trainer import plain
from fedmed.losses.agreement_loss import all_classes

BINS = 1000  # of the probabilities from 0 to 1


class LabelConfidence:
    """Handler of a validation: counts each class, and the probabilities of what the model got right of it.

    A histogram a class, so nothing is kept of a case. Predictions are probabilities (B, C, ...), or (B, 1, ...) of
    class 1 of two; those of several classes that do not sum to 1 are logits. Labels are classes (B, 1, ...) or (B,).

    Args:
        pred, label: keys of the evaluator's output.
    """

    def __init__(self, pred: str = "pred", label: str = "label") -> None:
        self.pred, self.label = pred, label
        self.counts: Tensor | None = None
        self.paused = False

    def attach(self, engine: Engine) -> None:
        """Count whenever the evaluator has a prediction, before its post-processing changes it."""
        engine.add_event_handler(IterationEvents.FORWARD_COMPLETED, self)

    def __call__(self, engine: Engine) -> None:
        found: Any = engine.state.output
        if not self.paused:
            self.count(plain(found[self.pred]).float(), plain(found[self.label]))

    def count(self, pred: Tensor, label: Tensor) -> None:
        """Add a batch; see the class."""
        logits = pred.shape[1] > 1 and not torch.allclose(pred.sum(dim=1), pred.new_ones(()), atol=1e-2)
        p = all_classes(pred.softmax(dim=1) if logits else pred)
        confidence, named = p.max(dim=1)
        classes = label.reshape(named.shape).long()
        right = named == classes
        counts = torch.stack([torch.histc(confidence[right & (named == c)], BINS, 0, 1) for c in range(p.shape[1])])
        self.counts = counts.cpu() + (0 if self.counts is None else self.counts)

    def quantiles(self, level: float) -> Tensor | None:
        """For each class the probability below which a share ``level`` of the right ones lies, (C,) in [0, 1].

        0, so that all count, for a class that was never right; None if nothing was counted.
        """
        if self.counts is None:
            return None
        below = self.counts.cumsum(dim=1)
        return (below < level * below[:, -1:]).sum(dim=1) / BINS
