"""FedRep (Collins et al. 2021, arXiv 2102.07078)."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from fedmed.errors import JobError
from fedmed.in_range import in_range
from fedmed.methods.algorithm import Algorithm
from fedmed.training.corrections.correction import Correction, Parameters, RoundStart


@dataclass(frozen=True)
class FedRep(Algorithm):
    """Each site has a head of its own on a representation that all share; a round trains one, then the other.

    Attributes:
        head_share: the head's part of a round's steps, above 0 and below 1; with half of ``epochs: 2`` each part
            has an epoch.
        group: sharing group of the bundle whose layers are the head.
    """

    title: ClassVar[str] = "FedRep"
    source: ClassVar[str] = "Collins et al. 2021, arXiv 2102.07078"
    overlay: ClassVar[str] = "fedrep"

    head_share: float = 0.5
    group: str = "head"

    def __post_init__(self) -> None:
        in_range("head_share", self.head_share, above=0, below=1)

    def settings(self) -> Mapping[str, float]:
        return {"head_share": self.head_share}

    def private(self) -> str:
        return self.group


class HeadFirst(Correction):
    """First the head alone, then the representation alone (Collins et al. 2021, arXiv 2102.07078, Algorithm 1).

    The head are the parameters that stay at the site, the representation all that it receives and sends back. What is
    frozen gets no gradient, so neither the optimizer nor its momentum moves it; its dropout stays active. After the
    head's part the representation is what came, bit for bit, with BatchNorm's statistics.

    Args:
        network: the bundle's.
        head_share: the head's part of a round's steps, above 0 and below 1, rounded up; each part has a step at least.

    Raises:
        JobError: the share is not such a number.
    """

    def __init__(self, network: nn.Module, head_share: float = 0.5) -> None:
        self.network, self.head_share = network, in_range("head_share", head_share, above=0, below=1)

    def begin(self, start: RoundStart) -> None:
        """Freeze the representation.

        Raises:
            JobError: a trained tensor belongs to neither part, a part has none, or the round has a single step.
        """
        trained = {name: parameter for name, parameter in start.parameters.items() if parameter.requires_grad}
        if between := [name for name in trained if name in start.received and name not in start.shared]:
            raise JobError(
                f"'{between[0]}' comes from the server and does not go back, so it is neither of the head nor of the "
                "representation; let sites send all that they receive"
            )
        self._head = [parameter for name, parameter in trained.items() if name not in start.shared]
        self._body = [parameter for name, parameter in trained.items() if name in start.shared]
        if not self._head or not self._body:
            what = "the head" if not self._head else "the representation"
            raise JobError(f"no layer of {what} is trained: the head is what 'sharing' keeps at the site")
        if start.steps < 2:
            raise JobError(f"a round of {start.steps} step has no room for head and representation; give it 2 or more")
        self._came = {name: start.received[name] for name in start.shared}
        self._first = min(math.ceil(start.steps * self.head_share - 1e-9), start.steps - 1)
        _freeze(self._body)

    def before_iteration(self, done: int) -> None:
        """After the head's part, put the representation back as it came, and train it."""
        if done != self._first:
            return
        with torch.no_grad():
            tensors = self.network.state_dict()
            for name, tensor in self._came.items():
                tensors[name].copy_(tensor)
        _freeze(self._head)
        _thaw(self._body)

    def end(self, parameters: Parameters) -> None:
        _thaw(self._head)


def _freeze(parameters: Iterable[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.requires_grad_(False)
        parameter.grad = None  # an optimizer would go on by what is left of it


def _thaw(parameters: Iterable[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.requires_grad_(True)
