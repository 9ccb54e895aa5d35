"""SCAFFOLD at the server: the mean of the sites' control variates, which goes with every task."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.rule import ExpectedSenders, Model, Outcome, RoundFacts
from fedmed.aggregation.weighted_mean import FIRST, WeightedMean
from fedmed.errors import StateError, UpdateRefused

CONTROL, DIFFERENCE = "control", "control_difference"  # to the sites, and from them


class ControlledMean:
    """A mean, and ``c ← c + (1/N) Σ_i (c_i⁺ - c_i)`` (Karimireddy et al. 2020, arXiv 1910.06378, Algorithm 1).

    A rule, see :class:`fedmed.aggregation.rule.ServerRule`. N counts all sites that train in the job, also those
    without an update in this round. c is kept in float64. Sites correct their gradients by
    :class:`fedmed.engines.corrections.control.ControlVariate`.

    Args:
        mean: makes the next model; None: weighted by steps.
    """

    def __init__(self, mean: WeightedMean | None = None) -> None:
        self.mean = mean or WeightedMean()
        self.control: dict[str, Tensor] = {}

    def check(self, senders: ExpectedSenders) -> None:
        """What the mean refuses."""
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
        """c, and the mean's."""
        state: dict[str, Any] = {"control": self.control} if self.control else {}
        return state | ({"mean": kept} if (kept := self.mean.state()) else {})

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        if odd := set(state) - {"control", "mean"}:
            raise StateError(f"the kept state of the server's rule holds {', '.join(map(str, odd))}, not SCAFFOLD's c")
        self.control = dict(state.get("control", {}))
        self.mean.restore(state.get("mean", {}))
