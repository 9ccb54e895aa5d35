"""FedDyn (Acar et al. 2021, arXiv 2111.04263)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.rule import Model, RoundFacts
from fedmed.aggregation.server_step import ServerOptimizer
from fedmed.errors import JobError, StateError
from fedmed.in_range import in_range
from fedmed.methods.algorithm import Algorithm
from fedmed.methods.method import MEAN
from fedmed.training.corrections.correction import Correction, Parameters, RoundStart, add_pull, check_kept


@dataclass(frozen=True)
class FedDyn(Algorithm):
    """Sites and server keep a state by which the sites' minima meet in that of all of them; all sites count the same.

    The study's ``server_step``, an optimizer of the server, acts on what FedDyn makes of the round.

    Attributes:
        alpha: strength, above 0, of the sites' terms and the server's.
        delayed_h: see :class:`DynamicStep`.
    """

    title: ClassVar[str] = "FedDyn"
    source: ClassVar[str] = "Acar et al. 2021, arXiv 2111.04263"
    overlay: ClassVar[str] = "feddyn"
    at_server: ClassVar[bool] = True

    alpha: float = 0.01
    delayed_h: bool = False

    def __post_init__(self) -> None:
        in_range("alpha", self.alpha, above=0)
        if type(self.delayed_h) is not bool:
            raise JobError(f"'delayed_h' is {self.delayed_h!r}; write true or false")

    def settings(self) -> Mapping[str, float]:
        return {"alpha": self.alpha}

    def rule(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The plain mean, FedDyn's step, then that of the study."""
        step = {"by": "fedmed.systems.algorithms.feddyn.DynamicStep", "alpha": self.alpha, "delayed_h": self.delayed_h}
        step["then"] = args.get("step")
        return {"path": MEAN, "args": {**args, "weighting": "uniform", "step": step}}


class DynamicTerm(Correction):
    """Adds ``α/2 ‖ω - ω_t‖² - ⟨g, ω⟩`` to the loss (Acar et al. 2021, arXiv 2111.04263, Algorithm 1).

    ω_t is what the site received. After the round ``g ← g - α (ω_end - ω_t)``, from 0; g is kept in float64 and
    outlives the round. Only tensors that the site sends back are moved. The server's part is :class:`DynamicStep`.

    Args:
        alpha: α, above 0, the same as at the server.

    Raises:
        JobError: α is not such a number.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = in_range("alpha", alpha, above=0)
        self._g: dict[str, Tensor] = {}

    def begin(self, start: RoundStart) -> None:
        check_kept(self._g, start.parameters, "gradients of its earlier rounds")
        self._received = start.shared_parameters()
        self._linear = {name: self._g[name].to(t) for name, t in self._received.items() if name in self._g}

    def before_step(self, parameters: Parameters) -> None:
        """∇H + α (ω - ω_t) - g."""
        for name, received in self._received.items():
            if (gradient := parameters[name].grad) is not None:
                add_pull(gradient, parameters[name], received, self.alpha)
                if name in self._linear:
                    gradient.sub_(self._linear[name])

    def end(self, parameters: Parameters) -> None:
        """g ← g - α (ω_end - ω_t)."""
        for name, received in self._received.items():
            moved = parameters[name].detach().cpu().double() - received.cpu().double()
            self._g[name] = self._g.get(name, torch.zeros_like(moved)) - self.alpha * moved

    def state_dict(self) -> dict[str, Any]:
        return {"g": dict(self._g)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._g = {name: tensor.double() for name, tensor in state_dict["g"].items()}


class DynamicStep:
    """FedDyn's state h (Acar et al. 2021, arXiv 2111.04263, Algorithm 1), after a mean in which sites count the same.

    See :class:`fedmed.aggregation.server_step.ServerOptimizer`. With K the number of sites that train in the job,
    whether or not they sent an update in this round::

        h_{t+1} = h_t - α · (1/K) Σ_k (ω_k - ω_t)
        ω_{t+1} = mean_k ω_k - h_{t+1} / α

    h is kept in float64. Sites add :class:`DynamicTerm`.

    Args:
        alpha: α, above 0, the same as at the sites.
        delayed_h: the model takes h_t, as Markert 2022 prints it, and not h_{t+1}.
        then: acts on ``ω_t - ω_{t+1}`` as its pseudo-gradient, such as a server's optimizer; None: ω_{t+1} is the
            next model.

    Raises:
        JobError: α is not such a number.
    """

    def __init__(self, alpha: float, delayed_h: bool = False, then: ServerOptimizer | None = None) -> None:
        self.alpha, self.delayed_h, self.then = in_range("alpha", alpha, above=0), delayed_h, then
        self.h: dict[str, Tensor] = {}

    def move(
        self, model: Model, mean: Model, names: Sequence[str], updates: Sequence[Contribution], facts: RoundFacts
    ) -> Mapping[str, Tensor]:
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
        return {"h": self.h, **({"then": kept} if self.then and (kept := self.then.state()) else {})} if self.h else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        if state and ("h" not in state or set(state) - {"h", *(["then"] if self.then else [])}):
            raise StateError(f"the kept state of the server's step holds {', '.join(map(str, state))}, not FedDyn's h")
        self.h = dict(state.get("h", {}))
        if self.then:
            self.then.restore(state.get("then", {}))
