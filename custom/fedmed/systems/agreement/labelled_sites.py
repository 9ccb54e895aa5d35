"""Values that sites with labels send: shares of classes, confidence where they are right, scores of two means."""

from collections.abc import Mapping
from typing import Any

import torch
from ignite.engine import Engine
from monai.engines.utils import IterationEvents
from torch import Tensor, nn

from fedmed.data.cache import CaseCacheDataset
from fedmed.data.listed_images import plain
from fedmed.systems.agreement.engine import MEAN
from fedmed.systems.agreement.loss import all_classes
from fedmed.training.corrections.correction import Correction, RoundStart

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
        output: Any = engine.state.output
        if not self.paused:
            self.count(plain(output[self.pred]).float(), plain(output[self.label]))

    def count(self, pred: Tensor, label: Tensor) -> None:
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


class LabelShares(Correction):
    """Changes nothing in the training; sends ``label_shares``, the share of each class in the training labels, (C,).

    Of voxels where labels are masks, of images where they are classes. Counted once, in the site's first round, after
    the received model has been scored: until then the number of classes is not known.

    Args:
        dataset: the training cases; each has a ``label``, a class or a mask of classes.
        confidence: has met a prediction of the network.
    """

    def __init__(self, dataset: CaseCacheDataset, confidence: LabelConfidence) -> None:
        self.dataset, self.confidence = dataset, confidence
        self._shares: Tensor | None = None

    def begin(self, start: RoundStart) -> None:
        if self._shares is None and self.confidence.counts is not None:
            n_classes = len(self.confidence.counts)
            counts = sum((self._count(index, n_classes) for index in range(len(self.dataset))), torch.zeros(n_classes))
            self._shares = counts / counts.sum().clamp_min(1)

    def _count(self, index: int, n_classes: int) -> Tensor:
        label = self.dataset.data[index].get("label")
        classes = torch.tensor([label]) if isinstance(label, int) else self.dataset.prepared(index)["label"].flatten()
        return torch.bincount(classes.long(), minlength=n_classes)[:n_classes].double()

    def extras(self) -> dict[str, float | Tensor]:
        return {} if self._shares is None else {"label_shares": self._shares.float()}

    def state_dict(self) -> dict[str, Any]:
        return {} if self._shares is None else {"shares": self._shares}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._shares = state_dict.get("shares")


class JudgedMeans(Correction):
    """Changes nothing in the training; sends what the server needs to weigh sites without labels.

    - ``label_confidence``: for each class a quantile of the received model's confidence where it is right, (C,), of
      the validation list, if the server needs it; the quantile falls evenly over the rounds.
    - ``mean_scores``: the score of the received model, and of the labelled sites' mean, on the validation list, (2,).

    Nothing is sent in a round in which the received model is not scored.

    Args:
        evaluator: of the validation, a :class:`monai.engines.Evaluator`; it has scored the received model before.
            None: the site has no validation list.
        network: the network that it evaluates.
        confidence: has counted then.
        first, last: quantile in the first and in the last round, 0 to 1.
        tell_confidence: whether the server needs it.
    """

    takes = (MEAN,)

    def __init__(
        self,
        evaluator: Any,
        network: nn.Module,
        confidence: LabelConfidence,
        first: float = 0.5,
        last: float = 0.1,
        tell_confidence: bool = True,
    ) -> None:
        self.evaluator, self.network, self.confidence = evaluator, network, confidence
        self.first, self.last, self.tell_confidence = first, last, tell_confidence
        self._values: dict[str, float | Tensor] = {}

    def begin(self, start: RoundStart) -> None:
        progress = start.round / max(1, start.rounds - 1)
        quantiles = self.confidence.quantiles(self.first + (self.last - self.first) * progress)
        if quantiles is None:
            return
        self._values = {"label_confidence": quantiles} if self.tell_confidence else {}
        if MEAN in start.values:
            self._values["mean_scores"] = torch.tensor([score(self.evaluator), self._score(start.values[MEAN])])

    def _score(self, mean: dict[str, Tensor]) -> float:
        received = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        self.confidence.paused = True  # it is about the received model
        try:
            self.network.load_state_dict({**received, **mean})
            self.evaluator.run()
            return score(self.evaluator)
        finally:
            self.network.load_state_dict(received)
            self.confidence.paused = False

    def extras(self) -> dict[str, float | Tensor]:
        return self._values


def score(evaluator: Engine) -> float:
    """The metric by which the evaluator compares models."""
    return float(evaluator.state.metrics[evaluator.state.key_metric_name])  # type: ignore[attr-defined]
