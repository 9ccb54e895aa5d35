"""A labelled site scores what sites without labels added to the model."""

from typing import Any

import torch
from ignite.engine import Engine
from torch import Tensor, nn

from fedmed.engines.agreement_engine import MEAN
from fedmed.engines.gradient_correction import Correction, RoundStart
from fedmed.engines.label_confidence import LabelConfidence


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
        self._found: dict[str, float | Tensor] = {}

    def begin(self, start: RoundStart) -> None:
        """Before the round's first step."""
        progress = start.round / max(1, start.rounds - 1)
        quantiles = self.confidence.quantiles(self.first + (self.last - self.first) * progress)
        if quantiles is None:
            return
        self._found = {"label_confidence": quantiles} if self.tell_confidence else {}
        if MEAN in start.values:
            received = score(self.evaluator)
            self._found["mean_scores"] = torch.tensor([received, self._score(start.values[MEAN])])

    def _score(self, mean: dict[str, Tensor]) -> float:
        own = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        self.confidence.paused = True  # it is about the received model
        try:
            self.network.load_state_dict({**own, **mean})
            self.evaluator.run()
            return score(self.evaluator)
        finally:
            self.network.load_state_dict(own)
            self.confidence.paused = False

    def extras(self) -> dict[str, float | Tensor]:
        """See the class."""
        return self._found


def score(evaluator: Engine) -> float:
    """The metric by which the evaluator compares models."""
    return float(evaluator.state.metrics[evaluator.state.key_metric_name])  # type: ignore[attr-defined]
