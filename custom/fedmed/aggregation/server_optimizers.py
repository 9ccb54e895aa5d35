"""Optimizers at the server: steps along the pseudo-gradient (Reddi et al. 2021, arXiv 2003.00295, Algorithm 1).

Studies name them in ``server_step``. They act in float64, in blocks of scratch memory that is reused, and the
result does not depend on the number of threads.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.rule import Model, RoundFacts
from fedmed.aggregation.tensor_means import BLOCK
from fedmed.errors import StateError
from fedmed.in_range import in_range

setting = partial(in_range, of=" of the server's optimizer")
STEPS = "steps"  # that a parameter has taken; it counts for itself, for not every round moves every parameter


class PseudoGradientOptimizer:
    """Moves each parameter θ by an optimizer whose gradient is θ - θ̄, with θ̄ the mean of the round.

    See :class:`fedmed.aggregation.server_step.ServerOptimizer`. A parameter that nobody sent neither
    moves nor decays, and its moments stay as they are; nor does one that no site has changed yet, such as a frozen
    layer or a constant of the network. BatchNorm statistics have the mean's values.

    Args:
        rate: learning rate η, above 0.

    Attributes:
        moments: names of what is kept of each parameter, in float64, beside the number of its steps.
        start: value of a moment before the first step, where it is not 0.

    Raises:
        JobError: a setting that is out of range.
    """

    moments: tuple[str, ...] = ("first", "second")

    def __init__(self, rate: float) -> None:
        self.rate, self.start = setting("rate", rate, above=0), dict[str, float]()
        self._kept: dict[str, dict[str, Any]] = {}  # parameter -> steps, moments
        self._scratch = [torch.empty(BLOCK, dtype=torch.float64) for _ in range(2)]

    def step(self, point: Tensor, gradient: Tensor, moments: Sequence[Tensor], count: int) -> None:
        """Move ``point`` and ``moments`` in place.

        Args:
            point, gradient: some elements of θ and of the pseudo-gradient, float64, shape (n,).
            moments: of the same elements, in the order of :attr:`moments`.
            count: steps before this one.
        """
        raise NotImplementedError

    @torch.no_grad()
    def move(
        self, model: Model, mean: Model, names: Sequence[str], updates: Sequence[Contribution], facts: RoundFacts
    ) -> Mapping[str, Tensor]:
        """See :class:`.server_step.ServerOptimizer`; the next values take the memory of the mean's."""
        moved = [
            name for name in names if name in self._kept or not torch.equal(model[name].to(mean[name]), mean[name])
        ]
        for name in moved:
            kept = self._kept.setdefault(name, {STEPS: 0})
            for moment in self.moments:
                if moment not in kept:
                    kept[moment] = torch.full_like(mean[name], self.start.get(moment, 0.0), dtype=torch.float64)
            moments = [kept[moment].view(-1) for moment in self.moments]
            old, new = model[name].reshape(-1), mean[name].view(-1)
            for first in range(0, old.numel(), BLOCK):
                part = slice(first, min(first + BLOCK, old.numel()))
                point, gradient = (scratch[: part.stop - first] for scratch in self._scratch)
                point.copy_(old[part])
                torch.sub(point, gradient.copy_(new[part]), out=gradient)
                self.step(point, gradient, [moment[part] for moment in moments], kept[STEPS])
                new[part].copy_(point)
            kept[STEPS] += 1
        return {name: mean[name] for name in moved}

    def state(self) -> dict[str, Any]:
        """Return parameter -> its steps and moments."""
        return dict(self._kept)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over, without a copy, what :meth:`state` returned; StateError for that of another optimizer."""
        for name, kept in state.items():
            if not isinstance(kept, Mapping) or set(kept) != {STEPS, *self.moments}:
                raise StateError(f"what is kept of '{name}' is not a state of {type(self).__name__}")
        self._kept = {name: dict(kept) for name, kept in state.items()}


class ServerSGD(PseudoGradientOptimizer):
    """``b ← momentum·b + g;  θ ← θ - η·b``. At rate 1 without momentum θ becomes the mean, bit for bit: FedAvg.

    Args:
        rate: η, above 0.
        momentum: in [0, 1); Reddi et al. use 0.9 (FedAvgM).
    """

    def __init__(self, rate: float = 1.0, momentum: float = 0.0) -> None:
        super().__init__(rate)
        self.momentum = setting("momentum", momentum, least=0, below=1)
        self.moments = ("momentum",) if self.momentum else ()

    def move(
        self, model: Model, mean: Model, names: Sequence[str], updates: Sequence[Contribution], facts: RoundFacts
    ) -> Mapping[str, Tensor]:
        if self.rate == 1 and not self.momentum:  # the mean itself; to compute it again would round
            return {}
        return super().move(model, mean, names, updates, facts)

    def step(self, point: Tensor, gradient: Tensor, moments: Sequence[Tensor], count: int) -> None:
        settings: dict[str, Any] = {"weight_decay": 0.0, "dampening": 0.0, "nesterov": False, "maximize": False}
        sgd([point], [gradient], list(moments) or [None], fused=True, lr=self.rate, momentum=self.momentum, **settings)


class ServerAdam(PseudoGradientOptimizer):
    """Adam with bias correction, as PyTorch has it (FedAdam, but for the correction and where ε stands).

    ::

        m ← β1·m + (1-β1)·g;  v ← β2·v + (1-β2)·g²;  θ ← θ - η·(m/(1-β1^t)) / (√(v/(1-β2^t)) + ε),   t = 1, 2, …

    Args:
        rate: η, above 0.
        beta1, beta2: in [0, 1).
        epsilon: ε, above 0.
    """

    def __init__(self, rate: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> None:
        super().__init__(rate)
        self.beta1 = setting("beta1", beta1, least=0, below=1)
        self.beta2 = setting("beta2", beta2, least=0, below=1)
        self.epsilon = setting("epsilon", epsilon, above=0)

    def _settings(self, moments: Sequence[Tensor], count: int) -> dict[str, Any]:
        lists = {"exp_avgs": [moments[0]], "exp_avg_sqs": [moments[1]], "max_exp_avg_sqs": []}
        plain = {"amsgrad": False, "maximize": False, "fused": True, "state_steps": [torch.tensor(float(count))]}
        return lists | plain | {"beta1": self.beta1, "beta2": self.beta2, "lr": self.rate, "eps": self.epsilon}

    def step(self, point: Tensor, gradient: Tensor, moments: Sequence[Tensor], count: int) -> None:
        adam([point], [gradient], weight_decay=0.0, **self._settings(moments, count))


class ServerAdamW(ServerAdam):
    """Adam after ``θ ← θ·(1 - η·decay)``, in every round in which some site sent θ (Loshchilov and Hutter 2019).

    Args:
        rate, beta1, beta2, epsilon: as for Adam.
        decay: 0 or more.
    """

    def __init__(
        self,
        rate: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        decay: float = 1e-2,
    ) -> None:
        super().__init__(rate, beta1, beta2, epsilon)
        self.decay = setting("decay", decay, least=0)

    def step(self, point: Tensor, gradient: Tensor, moments: Sequence[Tensor], count: int) -> None:
        adamw([point], [gradient], weight_decay=self.decay, **self._settings(moments, count))


class ServerYogi(ServerAdam):
    """FedYogi (Reddi et al. 2021, Algorithm 2): v moves towards g² by steps that do not depend on how far it is.

    ::

        m ← β1·m + (1-β1)·g;  v ← v - (1-β2)·g²·sign(v - g²);  θ ← θ - η·m / (√v + τ),   v = τ² at the start

    Args:
        rate: η, above 0.
        beta1, beta2: in [0, 1).
        epsilon: τ, above 0.
    """

    def __init__(self, rate: float = 1e-2, beta1: float = 0.9, beta2: float = 0.99, epsilon: float = 1e-3) -> None:
        super().__init__(rate, beta1, beta2, epsilon)
        self.start = {"second": epsilon**2}

    def step(self, point: Tensor, gradient: Tensor, moments: Sequence[Tensor], count: int) -> None:
        """One operation at a time: torch rounds fused ones otherwise in some lanes, which depend on the threads."""
        first, second = moments
        square = gradient.square()
        second.sub_((second - square).sign_().mul_(square).mul_(1 - self.beta2))
        first.mul_(self.beta1).add_(gradient.mul_(1 - self.beta1))
        point.sub_(second.sqrt().add_(self.epsilon).reciprocal_().mul_(first).mul_(self.rate))
