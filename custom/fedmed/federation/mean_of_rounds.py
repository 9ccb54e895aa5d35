"""The mean of the last rounds' models, in which less is chance than in any one of them."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedmed.aggregation.buffers import classify, maximum


class MeanOfRounds:
    """Keeps the last aggregates, for their mean as the result of a run.

    Stochastic weight averaging (Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization",
    UAI 2018, arXiv 1803.05407), with a round's aggregate in place of an epoch's model. BatchNorm statistics are
    averaged as the other tensors are; that paper computes them anew, which needs images.

    Args:
        rounds: how many are kept; 0: none, and there is no mean.

    Attributes:
        models: round -> its aggregate, the oldest first; at most ``rounds`` of them.
    """

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.models: dict[int, Mapping[str, Tensor]] = {}

    def add(self, round: int, model: Mapping[str, Tensor]) -> None:
        """Keep a round's aggregate, and forget the oldest one where there are too many."""
        if self.rounds:
            self.models[round] = model
        while len(self.models) > self.rounds:
            del self.models[min(self.models)]

    def mean(self) -> dict[str, Tensor] | None:
        """Return name -> tensor; None where nothing is kept. Computed in float64, in the order of the rounds."""
        kept = [self.models[round] for round in sorted(self.models)]
        return {name: _mean(name, [model[name] for model in kept]) for name in kept[0]} if kept else None


def _mean(name: str, tensors: Sequence[Tensor]) -> Tensor:
    kind, last = classify(name, tensors[-1]), tensors[-1]
    if kind == "constant":
        return last
    if kind == "counter":
        return maximum(torch.zeros_like(last), tensors)
    total = torch.zeros(last.shape, dtype=torch.float64)
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(last.dtype)
