"""FedDyn at the server: the mean goes on by what the sites' earlier rounds left open."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.rule import Model, RoundFacts
from fedmed.aggregation.server_step import ServerStep
from fedmed.errors import StateError
from fedmed.in_range import in_range


class DynamicStep:
    """FedDyn's state h (Acar et al. 2021, arXiv 2111.04263, Algorithm 1), after a mean in which sites count the same.

    A step, see :class:`fedmed.aggregation.server_step.ServerStep`. With K the number of sites that train in the job,
    whether or not they sent an update in this round::

        h_{t+1} = h_t - α · (1/K) Σ_k (ω_k - ω_t)
        ω_{t+1} = mean_k ω_k - h_{t+1} / α

    h is kept in float64. Sites add :class:`fedmed.engines.corrections.dynamic.DynamicTerm`.

    Args:
        alpha: α, above 0, the same as at the sites.
        delayed_h: the model takes h_t, as Markert 2022 prints it, and not h_{t+1}.
        then: acts on ``ω_t - ω_{t+1}`` as its pseudo-gradient, such as a server's optimizer; None: ω_{t+1} is the
            next model.

    Raises:
        JobError: α is not such a number.
    """

    def __init__(self, alpha: float, delayed_h: bool = False, then: ServerStep | None = None) -> None:
        self.alpha, self.delayed_h, self.then = in_range("alpha", alpha, above=0), delayed_h, then
        self.h: dict[str, Tensor] = {}

    def move(
        self, model: Model, mean: Model, names: Sequence[str], updates: Sequence[Contribution], facts: RoundFacts
    ) -> Mapping[str, Tensor]:
        """See :class:`ServerStep`."""
        sites, moved = len(facts.training) or len(updates), {}
        for name in names:
            before = self.h.get(name, torch.zeros_like(model[name], dtype=torch.float64))
            total = sum(update.tensors[name].double() for update in updates if name in update.tensors)
            self.h[name] = before - self.alpha / sites * total
            used = before if self.delayed_h else self.h[name]
            moved[name] = mean[name].double() - used / self.alpha
        more = self.then.move(model, {**mean, **moved}, names, updates, facts) if self.then else {}
        return {**moved, **more}

    def state(self) -> dict[str, Any]:
        """h, and the state of what follows."""
        return {"h": self.h, **({"then": kept} if self.then and (kept := self.then.state()) else {})} if self.h else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        if state and ("h" not in state or set(state) - {"h", *(["then"] if self.then else [])}):
            raise StateError(f"the kept state of the server's step holds {', '.join(map(str, state))}, not FedDyn's h")
        self.h = dict(state.get("h", {}))
        if self.then:
            self.then.restore(state.get("then", {}))
