"""The mean of the labelled sites, and what sites without labels add to it."""

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.reported import check_number
from fedmed.aggregation.rule import ExpectedSenders, Model, Outcome, RoundFacts
from fedmed.aggregation.sharing import classify
from fedmed.aggregation.weighted_mean import FIRST, Reasons, SampleWeighting, WeightedMean
from fedmed.errors import JobError, RoundFailed, StateError, UpdateRefused
from fedmed.in_range import in_range

COMBINE = ("correct", "join", "average")
LABELLED, UNLABELLED = "supervised", "unsupervised"
MEAN, GATE, CLASSES = "labelled_mean", "gate", "class_shares"  # these go with the next tasks
SHARE = "agreed_share"  # of a site without labels: share of voxels, or images, on which the two models agree
CONFIDENCE = "label_confidence"  # of a labelled one: for each class a quantile of its confidence where it is right
SHARES = "label_shares"  # of a labelled one: share of each class among its training labels
SCORES = "mean_scores"  # of a labelled one: score of the model with what sites without labels added, and without
REMEMBERED = 0.5  # of what was seen in the rounds before; a validation list of few patients says little in one round
MARGIN = 0.02  # of a score, at any one labelled site
LOWERED, RAISED = 0.5, 0.1


class LabelledMean:
    """Labelled sites make a mean of their own, undiluted; sites without labels then move it.

    A rule, see :class:`fedmed.aggregation.rule.ServerRule`. With L the labelled sites' mean, U that of the sites
    without labels (by images times the share of voxels on which they agree, a number that they report), G the model
    before, and t the validation-gated weight, 0 to 1, see :class:`ValidationGate`, the next model is::

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
        if type(ramp_rounds) is not int or ramp_rounds < 0:
            raise JobError(f"'ramp_rounds' is {ramp_rounds!r}; give a number of rounds, 0 for none")
        self.fixed_gate = in_range("fixed_gate", fixed_gate, least=0, most=1)
        self.strength = in_range("strength", strength, above=0, most=2)
        self.mean, self.combine = mean or WeightedMean(), combine
        self.ramp_rounds, self.gate, self.judge = ramp_rounds, gate, ValidationGate() if careful else None
        self.unlabelled = WeightedMean(AgreedSamples())
        self.joined = 0  # rounds in which sites without labels counted

    def check(self, senders: ExpectedSenders) -> None:
        if LABELLED not in senders.roles.values():
            raise JobError(f"no site has the role '{LABELLED}'; this rule measures sites without labels by those with")
        self.mean.check(senders)

    def check_update(self, update: Contribution) -> None:
        self.mean.check_update(update)
        check_reports(update)

    def state(self) -> dict[str, Any]:
        judge = {"judge": self.judge.state()} if self.judge else {}
        return {"joined": self.joined, **judge, **({"mean": kept} if (kept := self.mean.state()) else {})}

    def restore(self, state: Mapping[str, Any]) -> None:
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
        scores = {u.site: u.extras[SCORES].clamp(0, 1).tolist() for u in labelled if SCORES in u.extras}
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
        outcome.facts |= {"trust": trust, "strength": strength}
        if scores:
            means = (math.fsum(column) / len(scores) for column in zip(*scores.values(), strict=True))
            outcome.facts |= dict(zip(("score_with", "score_without"), means, strict=True))
        return outcome

    def _strength(self, labelled: Sequence[Contribution], moving: Sequence[Contribution]) -> float:
        """Weight of U, before the validation-gated weight."""
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
        names = ({GATE: CONFIDENCE} if self.gate else {}) | {CLASSES: SHARES}
        means = {name: class_numbers(labelled, reported) for name, reported in names.items()}
        fixed = {GATE: torch.tensor([self.fixed_gate])} if self.gate else {}
        numbers = fixed | {name: value for name, value in means.items() if value is not None}
        of_role = {UNLABELLED: for_all | numbers, LABELLED: for_all if self.judge else {}}
        return {site: of_role[role] for site, role in facts.roles.items() if of_role.get(role)}


class AgreedSamples(SampleWeighting):
    """By training images times the share on which the models agree; without a share by images."""

    kind = "agreed samples"

    def of_trained(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        images = super().of_trained(updates, user_weights)
        return {update.site: images[update.site] * agreed_share(update) for update in updates}


def class_numbers(updates: Sequence[Contribution], name: str) -> Tensor | None:
    """The mean over sites of a number for each class, (C,) in [0, 1]; None where none sends it, or sizes differ."""
    sent = [update.extras[name] for update in updates if name in update.extras]
    return torch.stack(sent).clamp(0, 1).mean(dim=0) if len({len(numbers) for numbers in sent}) == 1 else None


def agreed_share(update: Contribution) -> float:
    """Share that the site reports, 1 where it reports nothing."""
    return float(update.extras.get(SHARE, 1.0))


def check_reports(update: Contribution) -> None:
    """Raise UpdateRefused for reported values out of range; NaN is in none. Arrays may be a little beyond, by noise."""
    if SHARE in update.extras:
        check_number(update, SHARE, lambda share: None if 0 <= share <= 1 else "from 0 to 1")
    for name, size in ((CONFIDENCE, None), (SHARES, None), (SCORES, 2)):
        value = update.extras.get(name)
        if value is None:
            continue
        fits = isinstance(value, Tensor) and value.ndim == 1 and len(value) and size in (None, len(value))
        if not fits or not bool(((value >= -1) & (value <= 2)).all()):  # a site may have added noise
            shown = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else reprlib.repr(value)
            wanted = "numbers from 0 to 1" if size is None else f"{size} numbers from 0 to 1"
            raise UpdateRefused(update.site, f"its '{name}' is {shown}; it must be {wanted}")


def unusual(
    labelled: Sequence[Contribution], others: Sequence[Contribution], moving: Sequence[Contribution], judged: bool
) -> Reasons:
    """Warnings of reports that are missing or 0, and of what follows, for the round's record.

    ``others`` are the updates of sites without labels, ``moving`` those of them that count; ``judged``: whether
    labelled sites were asked to judge.
    """
    counted = {update.site for update in moving}
    warnings = [
        ([u.site for u in others if u.site not in counted and u.n_steps], "the models agree nowhere in its images; "
         "it does not count in this round"),
        ([u.site for u in others if SHARE not in u.extras], f"does not send '{SHARE}' (privacy.allowed_extras in its "
         "settings); it counts by its images alone"),
    ]  # fmt: skip
    if judged and not any(SCORES in update.extras for update in labelled):
        nobody = f"no labelled site sends '{SCORES}'; nobody judges what the others add"
        warnings.append(([u.site for u in labelled], nobody))
    return [(sites, reason) for sites, reason in warnings if sites]


def ungated(labelled: Sequence[Contribution], fixed: float) -> Reasons:
    """Warnings of labelled sites that tell no confidence, and from where on a voxel counts then."""
    silent = [update.site for update in labelled if CONFIDENCE not in update.extras]
    no_number = f"does not send '{CONFIDENCE}' (no validation, or privacy.allowed_extras in its settings)"
    if class_numbers(labelled, CONFIDENCE) is not None:
        return [(silent, f"{no_number}; the gate is that of the others")] if silent else []
    why = no_number if silent else f"sends '{CONFIDENCE}' of another number of classes than others"
    sites = silent or [update.site for update in labelled]
    return [(sites, f"{why}; what the models agree on counts from a fixed probability of {fixed:g} on")]


class ValidationGate:
    """A weight from 0 to 1, the same for all sites without labels: halved while they do harm, raised slowly after.

    Every labelled site scores two models of the round before: with what sites without labels added, and without it. The
    server keeps the difference of each, half of it from the rounds before. Where the mean over sites is negative, or
    one site's is below -0.02, the weight is halved; otherwise 0.1 is added to it. The second is for a site that draws
    otherwise than the others and loses what these gain.
    """

    def __init__(self) -> None:
        self.weight = 1.0
        self.gains: dict[str, float] = {}  # site -> with minus without, over the rounds

    def judged(self, scores: Mapping[str, Sequence[float]]) -> float:
        """Take the labelled sites' (with, without) into account, if there are some, and return the weight."""
        for site, (with_all, without) in scores.items():
            gain = with_all - without
            self.gains[site] = gain + REMEMBERED * (self.gains.get(site, gain) - gain)
        if gains := [self.gains[site] for site in scores]:
            harm = sum(gains) < 0 or min(gains) < -MARGIN
            self.weight = self.weight * LOWERED if harm else min(1.0, self.weight + RAISED)
        return self.weight

    def state(self) -> dict[str, Any]:
        return {"weight": self.weight, "gains": dict(self.gains)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`; ``{}`` is the start.

        Raises:
            StateError: it is not a weight, or not differences of scores.
        """
        weight, gains = state.get("weight", 1.0), state.get("gains", {})
        if not isinstance(weight, float) or not 0 <= weight <= 1:
            raise StateError(f"the kept validation-gated weight is {weight!r}; it must be a number from 0 to 1")
        if not isinstance(gains, dict) or not all(isinstance(g, float) and -1 <= g <= 1 for g in gains.values()):
            raise StateError(f"the kept gains of the labelled sites are {gains!r}; each must be a number from -1 to 1")
        self.weight, self.gains = weight, dict(gains)
