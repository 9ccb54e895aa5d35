"""The mean of the labelled sites, and what sites without labels add to it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.buffers import classify
from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.do_no_harm import DoNoHarm
from fedmed.aggregation.label_reports import (
    CONFIDENCE,
    SHARES,
    AgreedSamples,
    agreed_share,
    check_reports,
    class_numbers,
    mean_scores,
    score_facts,
    ungated,
    unusual,
)
from fedmed.aggregation.rule import ExpectedSenders, Model, Outcome, RoundFacts
from fedmed.aggregation.weighted_mean import FIRST, WeightedMean
from fedmed.errors import JobError, RoundFailed

COMBINE = ("correct", "join", "average")
LABELLED, UNLABELLED = "supervised", "unsupervised"
MEAN, GATE, CLASSES = "labelled_mean", "gate", "class_shares"  # these go with the next tasks


class LabelledMean:
    """Labelled sites make a mean of their own, undiluted; sites without labels then move it.

    A rule, see :class:`fedmed.aggregation.rule.ServerRule`. With L the labelled sites' mean, U that of the sites
    without labels (by images times the share of voxels on which they agree, a number that they report), G the model
    before, and t the do-no-harm weight, 0 to 1, see :class:`DoNoHarm`, the next model is::

        correct   L + t · strength · (U - G)
        join      L + t · w · (U - L)    w: the share of U's sites in all images times agreement; a labelled site's is 1
        average   L + t · s · (U - L)    s: the share of U's sites in all steps

    ``correct`` moves parameters alone; buffers, such as BatchNorm's, are the labelled sites'. L, and the means of what
    labelled sites tell of their labels, go with the next task to every site without labels, and L to the
    labelled sites if they judge. A site that reports no share counts by its images alone.

    Args:
        mean: makes L and U.
        combine: ``correct`` (ours), ``join`` or ``average``.
        strength: of ``correct``, above 0, at most 2.
        ramp_rounds: rounds over which ``strength`` grows, counted from the first in which such a site trains.
        gate: whether the labelled sites' confidences decide from where on a voxel counts.
        fixed_gate: of the gate the probability, 0 to 1, in a round after which no labelled site told its confidence.
        careful: whether labelled sites judge.

    Raises:
        JobError: an unknown way to combine, or a number out of range.
    """

    def __init__(
        self,
        mean: WeightedMean | None = None,
        combine: str = "correct",
        strength: float = 0.5,
        ramp_rounds: int = 0,
        gate: bool = True,
        careful: bool = True,
        fixed_gate: float = 0.9,
    ) -> None:
        if combine not in COMBINE:
            raise JobError(f"'combine' is {combine!r}; use {', '.join(COMBINE)}")
        if type(strength) not in (int, float) or not 0 < strength <= 2:
            raise JobError(f"'strength' is {strength!r}; give a number above 0, at most 2, such as 0.5")
        if type(ramp_rounds) is not int or ramp_rounds < 0:
            raise JobError(f"'ramp_rounds' is {ramp_rounds!r}; give a number of rounds, 0 for none")
        if type(fixed_gate) not in (int, float) or not 0 <= fixed_gate <= 1:
            raise JobError(f"'fixed_gate' is {fixed_gate!r}; give a probability from 0 to 1, such as 0.9")
        self.fixed_gate = fixed_gate
        self.mean, self.combine, self.strength = mean or WeightedMean(), combine, strength
        self.ramp_rounds, self.gate, self.judge = ramp_rounds, gate, DoNoHarm() if careful else None
        self.unlabelled = WeightedMean(AgreedSamples())
        self.joined = 0  # rounds in which sites without labels counted

    def check(self, senders: ExpectedSenders) -> None:
        """Refuse a federation without a labelled site."""
        if LABELLED not in senders.roles.values():
            raise JobError(
                f"no site has the role '{LABELLED}'; this rule needs a site with labels, which sites without them "
                "are measured by"
            )
        self.mean.check(senders)

    def check_update(self, update: Contribution) -> None:
        """Refuse reported values that cannot be meant."""
        self.mean.check_update(update)
        check_reports(update)

    def state(self) -> dict[str, Any]:
        """The mean's, the do-no-harm weight and the rounds of the ramp."""
        judge = {"judge": self.judge.state()} if self.judge else {}
        return {"joined": self.joined, **judge, **({"mean": kept} if (kept := self.mean.state()) else {})}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        self.joined = state.get("joined", 0)
        self.mean.restore(state.get("mean", {}))
        if self.judge:
            self.judge.restore(state.get("judge", {}))

    def aggregate(self, model: Model, updates: Sequence[Contribution], facts: RoundFacts = FIRST) -> Outcome:
        """Return the next model, and what goes with the next tasks; see :class:`ServerRule`."""
        updates = sorted(updates, key=lambda update: update.site)
        labelled = [update for update in updates if facts.roles.get(update.site) == LABELLED]
        others = [update for update in updates if facts.roles.get(update.site) != LABELLED]
        if not labelled:
            raise RoundFailed("no update of a labelled site was accepted; the model is unchanged")
        outcome = self.mean.aggregate(model, labelled, facts)
        if not others:
            outcome.values = self._values({}, labelled, facts)
            return outcome
        scores = mean_scores(labelled)
        trust = self.judge.judged(scores) if self.judge else 1.0
        moving = [update for update in others if agreed_share(update) > 0 and update.n_steps]
        strength, tensors = 0.0, outcome.tensors
        if moving:
            self.joined += 1
            added = self.unlabelled.aggregate(model, moving, facts)
            strength = trust * self._strength(labelled, moving)
            outcome.tensors = self._moved(model, tensors, added.tensors, moving, strength)
            outcome.coefficients |= {site: strength * c for site, c in added.coefficients.items()}
        sent = {name for update in labelled for name in update.tensors} if strength else set()
        outcome.values = self._values({n: t for n, t in tensors.items() if n in sent}, labelled, facts)
        outcome.warnings += unusual(labelled, others, moving, self.judge is not None and self.joined > 1)
        outcome.warnings += ungated(labelled, self.fixed_gate) if self.gate else []
        outcome.facts |= {"trust": trust, "strength": strength, **score_facts(scores)}
        return outcome

    def _strength(self, labelled: Sequence[Contribution], moving: Sequence[Contribution]) -> float:
        """How much U counts, before the do-no-harm weight."""
        if self.combine == "correct":
            return self.strength * (min(1.0, self.joined / self.ramp_rounds) if self.ramp_rounds else 1.0)
        if self.combine == "average":
            steps = math.fsum(update.n_steps for update in moving)
            return steps / (steps + math.fsum(update.n_steps for update in labelled))
        images = math.fsum(max(1, update.n_samples) * agreed_share(update) for update in moving)
        return images / (images + math.fsum(max(1, update.n_samples) for update in labelled))

    def _moved(
        self, model: Model, mean: Model, added: Model, moving: Sequence[Contribution], strength: float
    ) -> dict[str, Tensor]:
        """L and what U adds to it, of the tensors that U's sites sent."""
        sent = {name for update in moving for name in update.tensors}
        moved = dict(mean)
        for name in mean:
            if name not in sent or not mean[name].is_floating_point():
                continue
            if self.combine != "correct":
                moved[name] = torch.lerp(mean[name], added[name], strength)
            elif classify(name, mean[name]) == "parameter":
                moved[name] = mean[name] + strength * (added[name] - model[name])
        if not all(map(all_finite, moved.values())):
            raise RoundFailed("what sites without labels add to the model is not finite; the model is unchanged")
        return moved

    def _values(
        self, mean: Mapping[str, Tensor], labelled: Sequence[Contribution], facts: RoundFacts
    ) -> dict[str, dict[str, Any]]:
        """For each site what goes with its next task; without ``mean`` that is the model itself."""
        for_all: dict[str, Any] = {MEAN: dict(mean)} if mean else {}
        told = ({GATE: CONFIDENCE} if self.gate else {}) | {CLASSES: SHARES}
        means = {name: class_numbers(labelled, reported) for name, reported in told.items()}
        fixed = {GATE: torch.tensor([float(self.fixed_gate)])} if self.gate else {}
        numbers = fixed | {name: value for name, value in means.items() if value is not None}
        values = {}
        for site, role in facts.roles.items():
            if role == UNLABELLED:
                values[site] = for_all | numbers
            elif role == LABELLED and self.judge:
                values[site] = for_all
        return {site: found for site, found in values.items() if found}
