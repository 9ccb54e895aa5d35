"""SCAFFOLD (Karimireddy et al. 2020, arXiv 1910.06378)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.rule import ExpectedSenders, Model, Outcome, RoundFacts
from fedmed.aggregation.weighted_mean import FIRST, WeightedMean
from fedmed.errors import StateError, UpdateRefused
from fedmed.methods.algorithm import UNIFORM, Algorithm
from fedmed.methods.declarations import WITH_UPDATE, AuxiliaryValue
from fedmed.methods.method import MEAN
from fedmed.training.corrections.correction import Correction, Parameters, RoundStart, check_kept

CONTROL, DIFFERENCE = "control", "control_difference"  # to the sites, and from them


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """A site's gradients lose what is its own and get what all sites have in common; all sites count the same."""

    title: ClassVar[str] = "SCAFFOLD"
    source: ClassVar[str] = "Karimireddy et al. 2020, arXiv 1910.06378"
    overlay: ClassVar[str] = "scaffold"
    at_server: ClassVar[bool] = True

    def rule(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The plain mean, after which the study's step may act, and that of the control variates."""
        mean = {"path": MEAN, "args": {"weighting": {"path": UNIFORM, "args": {}}}}
        return {"path": "fedmed.systems.algorithms.scaffold.ControlledMean", "args": {"mean": mean}}

    def values(self) -> tuple[AuxiliaryValue, ...]:
        tells = (
            "How the mean gradient of the site's training images has changed since the round before: as much as an "
            "update tells of them, a second time, and without the noise that the site's settings add to updates."
        )
        return (AuxiliaryValue(DIFFERENCE, "a tensor for each of the update", WITH_UPDATE, "to the server", tells),)


class ControlVariate(Correction):
    """Adds ``c - c_i`` to the gradient (Karimireddy et al. 2020, arXiv 1910.06378, Eq. 3 and option II of Eq. 4).

    c comes from the server, 0 at first. The site's own c_i becomes the mean of the loss's gradients over the round's
    steps: with gradient descent at a rate η that is ``c_i - c + (ω_t - ω_end) / (steps · η)``, as printed, and it holds
    for other optimizers and for rates that change. What c_i has changed by leaves as ``control_difference``, name ->
    tensor, of the tensors that the site sends. The server's part is :class:`ControlledMean`.
    """

    takes = (CONTROL,)

    def __init__(self) -> None:
        self._local: dict[str, Tensor] = {}
        self._difference: dict[str, Tensor] = {}

    def begin(self, start: RoundStart) -> None:
        check_kept(self._local, start.parameters, "control variates")
        server = start.values.get(CONTROL, {})
        received = start.shared_parameters()
        self._shift = {
            name: _of(server, name, tensor).to(tensor) - _of(self._local, name, tensor).to(tensor)
            for name, tensor in received.items()
        }
        self._sum, self._steps = {name: torch.zeros_like(tensor) for name, tensor in received.items()}, 0

    def before_step(self, parameters: Parameters) -> None:
        """∇H - c_i + c."""
        self._steps += 1
        for name, shift in self._shift.items():
            if (gradient := parameters[name].grad) is not None:
                self._sum[name].add_(gradient)
                gradient.add_(shift)

    def end(self, parameters: Parameters) -> None:
        self._difference = {}
        for name, total in self._sum.items() if self._steps else ():
            new = (total / self._steps).cpu()
            self._difference[name] = new - _of(self._local, name, new)
            self._local[name] = new

    def extras(self) -> dict[str, Any]:
        return {DIFFERENCE: dict(self._difference)}

    def state_dict(self) -> dict[str, Any]:
        return {"own": dict(self._local)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._local = dict(state_dict["own"])


def _of(tensors: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    return tensors[name] if name in tensors else torch.zeros_like(like)


class ControlledMean:
    """A mean, and ``c ← c + (1/N) Σ_i (c_i⁺ - c_i)`` (Karimireddy et al. 2020, arXiv 1910.06378, Algorithm 1).

    A rule, see :class:`fedmed.aggregation.rule.ServerRule`. N counts all sites that train in the job, also those
    without an update in this round. c is kept in float64. Sites correct their gradients by :class:`ControlVariate`.

    Args:
        mean: makes the next model; None: weighted by steps.
    """

    def __init__(self, mean: WeightedMean | None = None) -> None:
        self.mean = mean or WeightedMean()
        self.control: dict[str, Tensor] = {}

    def check(self, senders: ExpectedSenders) -> None:
        self.mean.check(senders)

    def check_update(self, update: Contribution) -> None:
        """Refuse an update whose control difference is missing, or is not one of the tensors that it sends."""
        self.mean.check_update(update)
        differences = update.extras.get(DIFFERENCE)
        if not isinstance(differences, Mapping):
            reason = f"it has no '{DIFFERENCE}', without which the sites cannot be corrected; the site must list it "
            raise UpdateRefused(update.site, f"{reason}under 'privacy.allowed_extras', or leave the job")
        for name, tensor in differences.items():
            if name not in update.tensors or not isinstance(tensor, Tensor) or not tensor.is_floating_point():
                raise UpdateRefused(update.site, f"its '{DIFFERENCE}' is not of a tensor that it sends", name)
            if tensor.shape != update.tensors[name].shape or not all_finite(tensor):
                raise UpdateRefused(update.site, f"its '{DIFFERENCE}' has another shape, NaN or infinite values", name)

    def aggregate(self, model: Model, updates: Sequence[Contribution], facts: RoundFacts = FIRST) -> Outcome:
        """Return the mean, and c for every site that trains."""
        outcome = self.mean.aggregate(model, updates, facts)
        sites = len(facts.training) or len(updates)
        for update in sorted(updates, key=lambda update: update.site):
            for name, difference in update.extras[DIFFERENCE].items():
                before = self.control.get(name, torch.zeros_like(difference, dtype=torch.float64))
                self.control[name] = before + difference.double() / sites
        control = {name: tensor.to(model[name].dtype) for name, tensor in self.control.items()}
        outcome.values = {site: {CONTROL: control} for site in facts.training} if control else {}
        return outcome

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"control": self.control} if self.control else {}
        return state | ({"mean": kept} if (kept := self.mean.state()) else {})

    def restore(self, state: Mapping[str, Any]) -> None:
        if odd := set(state) - {"control", "mean"}:
            raise StateError(f"the kept state of the server's rule holds {', '.join(map(str, odd))}, not SCAFFOLD's c")
        self.control = dict(state.get("control", {}))
        self.mean.restore(state.get("mean", {}))
