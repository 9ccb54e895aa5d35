"""Federated averaging of differences with weights (Yang et al. 2021, Eq. 2 and 3, and others), or robustly."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from fedmed.aggregation.acceptance import check_bound, clip_factors, clipping_record, update_norm
from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.robust import RobustAggregator
from fedmed.aggregation.rule import ExpectedSenders, Outcome, RoundFacts
from fedmed.aggregation.server_step import ServerOptimizer, apply_step
from fedmed.aggregation.sharing import POLICIES
from fedmed.aggregation.tensor_means import SenderTable, TensorMeans, check_fit
from fedmed.class_paths import class_path
from fedmed.errors import FedMedError, JobError, RoundFailed, StateError

Reasons = list[tuple[list[str], str]]  # (sites, why the round is weighed otherwise because of them)
FIRST = RoundFacts()


class Weighting:
    """Weighting of sites, before user weights. A site that did no step never counts.

    Attributes:
        kind: its name in a job and in the run's record.
        wanted: what a site that cannot be weighed so did not send, in words.
        one_vote: whether it may be named beside a robust middle, under which every sender has one vote anyway.
    """

    kind: ClassVar[str]
    wanted: str = ""
    one_vote: ClassVar[bool] = False

    def check_sites(self, sites: int) -> None:
        """Refuse, by a JobError, a setting that so many sites cannot have."""

    def check_update(self, update: Contribution) -> None:
        """Refuse an update (UpdateRefused) by what it says about how much its site counts."""

    def known(self, update: Contribution) -> bool:
        """True where the update says what its site is weighed by."""
        return True

    def instead(self) -> "Weighting | None":
        """Return the weighting of a round in which a site does not say it; None = there is none."""
        return None

    def amounts(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        """Return what each site is weighed with, 0 or more.

        Args:
            updates: the senders of a tensor; those that did a step are all :meth:`known`.
            user_weights: site -> weight; a weighting that compares sites leaves those with 0 out.
        """
        idle = dict.fromkeys((update.site for update in updates), 0.0)
        return idle | self.of_trained([update for update in updates if update.n_steps], user_weights)

    def of_trained(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        """Return :meth:`amounts` of sites that did a step."""
        raise NotImplementedError

    def of_round(
        self, updates: Sequence[Contribution], user_weights: Mapping[str, float]
    ) -> tuple["Weighting", Reasons]:
        """Return by what this round's updates are weighed, and why not as the job says, if so.

        Where one site that counts does not say what it is weighed by, all are weighed otherwise.
        """
        weighting, reasons = self, []
        counted = [update for update in updates if update.n_steps and user_weights.get(update.site, 1.0)]
        while lacking := sorted(update.site for update in counted if not weighting.known(update)):
            instead = weighting.instead()
            if instead is None:
                raise FedMedError(f"{', '.join(lacking)} cannot be weighed by '{weighting.kind}'")
            does = "it sends" if len(lacking) == 1 else "they send"
            otherwise = f"so this round weighs by '{instead.kind}', not by '{weighting.kind}'"
            reasons.append((lacking, f"{does} no {weighting.wanted}, {otherwise}"))
            weighting = instead
        return weighting, reasons


class IterationWeighting(Weighting):
    """Weighting by local optimizer steps: Yang et al. 2021, Eq. 3."""

    kind = "iterations"
    one_vote = True

    def of_trained(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        return {update.site: update.n_steps for update in updates}


class UniformWeighting(Weighting):
    """Weighting in which every site counts the same."""

    kind = "uniform"
    one_vote = True

    def of_trained(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        return {update.site: 1 for update in updates}


class SampleWeighting(Weighting):
    """Weighting by training images: FedAvg (McMahan et al. 2017, arXiv 1602.05629); uniform if a site says none."""

    kind = "samples"
    wanted = "number of samples"

    def known(self, update: Contribution) -> bool:
        return update.n_samples > 0

    def instead(self) -> Weighting:
        return UniformWeighting()

    def of_trained(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        return {update.site: update.n_samples for update in updates}


class WeightedMean:
    """Move every tensor by the weighted mean, or robust middle, of its senders' differences; then a step may act.

    A rule, see :class:`fedmed.aggregation.rule.ServerRule`.

    Args:
        weighting: what a site counts by, times its user weight; None: local steps.
        middle: None: the mean; or a robust middle for a federation that does not trust every site (see ``robust``). It
            gives every sender one vote; a user weight may then only be 0, which leaves a site out.
        step: what acts on the mean, such as a server's optimizer; None: the mean is the next model.
        normalise: divide by the senders' total weight; False is Eq. 3 as printed (see ``weighting``).
        user_weights: site -> weight, 0 or more; a site without one counts with 1.
        buffers: BatchNorm statistics: ``average`` or ``pooled`` (correct second moment); ``local`` statistics are
            private and do not arrive here.
        clip_norm: an update with a larger L2 norm is scaled down to it first; None bounds nothing.

    Raises:
        JobError: an unknown buffer policy, a user weight that is negative or not finite, a bound that is not a positive
            number, or ``pooled`` without ``normalise``: a pooled variance needs coefficients that sum to 1. Or a
            robust middle together with what only a weighted mean has, or a step that is not one.
    """

    def __init__(
        self,
        weighting: Weighting | None = None,
        middle: RobustAggregator | None = None,
        step: ServerOptimizer | None = None,
        normalise: bool = True,
        user_weights: Mapping[str, float] | None = None,
        buffers: str = "average",
        clip_norm: float | None = None,
    ) -> None:
        if buffers not in POLICIES:
            raise JobError(f"buffer policy '{buffers}' is unknown; use one of {', '.join(POLICIES)}")
        if buffers == "pooled" and not normalise:
            raise JobError("buffers 'pooled' needs coefficients that sum to 1; set normalise to true or use 'average'")
        check_user_weights(user_weights or {})
        check_bound("clip_norm", clip_norm)
        if step is not None and not isinstance(step, ServerOptimizer):
            raise JobError(f"{class_path(step)} is no ServerOptimizer: see fedmed/aggregation/server_step.py")
        self.weighting = weighting or IterationWeighting()
        self.normalise, self.user_weights, self.buffers = normalise, dict(user_weights or {}), buffers
        self.clip_norm, self.step, self._middle = clip_norm, step, middle
        self._tensors = TensorMeans(buffers, middle, exact=step is not None)
        if middle and not self.weighting.one_vote:
            kind, rule = self.weighting.kind, middle.rule
            raise JobError(f"'weighting' '{kind}' has no meaning under rule '{rule}': every sender has one vote")
        if middle:
            middle.check_with(normalise, self.user_weights, buffers)

    def check(self, senders: ExpectedSenders) -> None:
        """Refuse user weights for unknown sites, a floor that is too high, and a robust middle of too few senders."""
        check_user_weights(self.user_weights, senders.roles)
        if self.clip_norm and senders.max_norm is not None and self.clip_norm >= senders.max_norm:
            bound = f"'max_norm' refuses from {senders.max_norm:g} on"
            raise JobError(f"'clip_norm' {self.clip_norm:g} never acts: {bound}")
        counted = [site for site in senders.sent if self.user_weights.get(site, 1.0)]
        self.weighting.check_sites(len(counted))
        if self._middle:
            for name, count in Counter(name for site in counted for name in senders.sent[site]).items():
                self._middle.check_senders(f"tensor '{name}'", count)

    def check_update(self, update: Contribution) -> None:
        self.weighting.check_update(update)

    def state(self) -> dict[str, Any]:
        return {"step": kept} if self.step and (kept := self.step.state()) else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        if set(state) - {"step"} or (state and not self.step):
            raise StateError(f"the kept state of the mean holds {', '.join(map(str, state))}, which this rule has not")
        if self.step:
            self.step.restore(state.get("step", {}))

    def coefficients(self, updates: Sequence[Contribution], weighting: Weighting | None = None) -> dict[str, float]:
        """Return site -> coefficient of these updates, in order of site names, for a tensor that all of them send.

        Under a robust rule each site's share of the votes.

        Args:
            updates: the senders.
            weighting: of the round; None: these are all updates of the round, which says it.
        """
        sites = {update.site for update in updates}
        if len(sites) != len(updates):
            raise FedMedError(f"a site has two updates in one round: {sorted(u.site for u in updates)}")
        weights = {site: weight for site, weight in self.user_weights.items() if site in sites}
        weighting = weighting or self.weighting.of_round(updates, self.user_weights)[0]
        coefficients = site_weights(weighting.amounts(updates, weights), weights, self.normalise)
        if self._middle is None:
            return coefficients
        votes = sum(1 for coefficient in coefficients.values() if coefficient)
        return {site: 1 / votes if coefficient else 0.0 for site, coefficient in coefficients.items()}

    def aggregate(
        self, model: Mapping[str, Tensor], updates: Sequence[Contribution], facts: RoundFacts = FIRST
    ) -> Outcome:
        """Return the next model; no argument is modified and the result does not depend on the order of updates.

        Each tensor is averaged over the updates that contain it, with coefficients of those senders alone. A site
        whose coefficient is 0 counts as no sender.

        Args:
            model: name -> tensor of any shape, on the CPU.
            updates: accepted updates of one round; ``tensors`` hold differences to ``model``.
            facts: when this is; for the step.

        Returns:
            ``tensors``: every name of ``model``, with its shape and dtype: a new tensor, or the very same object where
            no site sent it.

        Raises:
            RoundFailed: there is no update, or the result is not finite.
            JobError: a tensor with too few senders for a robust rule.
            FedMedError: two updates of one site, or no site has a weight above 0.
            SharingError: a name or shape that the model does not have, a changed constant, or a running variance
                without its mean.
        """
        if not updates:
            raise RoundFailed("there is no update to aggregate; the global model is unchanged")
        updates = sorted(updates, key=lambda update: update.site)
        weighting, reasons = self.weighting.of_round(updates, self.user_weights)
        coefficients = self.coefficients(updates, weighting)  # refuses a round in which no site counts
        check_fit(model, updates)
        norms = {u.site: update_norm(u.tensors) if self.clip_norm else 0.0 for u in updates}
        scales = clip_factors(norms, self.clip_norm)
        table = SenderTable(updates, partial(self.coefficients, weighting=weighting), self.user_weights, scales)
        result = self._tensors(model, table)
        if self.step:
            sent = [name for name in model if table.of(name).updates]
            result = apply_step(self.step, model, result, sent, updates, facts)
        return Outcome(result, coefficients, warnings=reasons, facts=clipping_record(norms, self.clip_norm))


def site_weights(
    amounts: Mapping[str, float], user_weights: Mapping[str, float] | None = None, normalise: bool = True
) -> dict[str, float]:
    """Return each site's coefficient from an amount ``m`` and its user weight ``w``, in order of site names.

    With local steps as amounts this is Yang et al. 2021 (Medical Image Analysis 70, 101992), Eq. 3::

        normalise=True    c_k = m_k w_k / sum_j m_j w_j      coefficients sum to 1
        normalise=False   c_k = (m_k / sum_j m_j) w_k        Eq. 3 as printed; with w < 1 the whole step shrinks

    Args:
        amounts: site -> local optimizer steps of the round, or what else is weighed by, 0 or more.
        user_weights: site -> weight, 0 or more; a site without one counts with 1.
        normalise: whether the coefficients are made to sum to 1.

    Raises:
        JobError: a user weight is for an unknown site, negative or not finite.
        FedMedError: a negative amount, or nothing to weigh: all weights are 0.

    Example:
        >>> site_weights({"a": 400, "b": 400}, {"b": 0.5}, normalise=False)
        {'a': 0.5, 'b': 0.25}
    """
    weights = user_weights or {}
    check_user_weights(weights, amounts)
    for site, amount in amounts.items():
        if amount < 0:
            raise FedMedError(f"site '{site}' reports {amount} steps or samples; a number of these is 0 or more")
    sites = sorted(amounts)
    products = {site: amounts[site] * float(weights.get(site, 1.0)) for site in sites}
    # fsum is exact, so the coefficients do not depend on the order of the sites.
    total = math.fsum(products.values() if normalise else amounts.values())
    if not any(products.values()):
        raise FedMedError(f"no site has a weight above 0: amounts {dict(amounts)}, user weights {dict(weights)}")
    return {site: products[site] / total for site in sites}


def check_user_weights(user_weights: Mapping[str, float], sites: Collection[str] | None = None) -> None:
    """Refuse, by a JobError, a user weight that is negative, not finite or not a number, or of an unknown site.

    Args:
        user_weights: site -> weight.
        sites: all sites of the job; None checks the values only.
    """
    for site, weight in user_weights.items():
        if sites is not None and site not in sites:
            raise JobError(f"user weight for unknown site '{site}'; the sites are {', '.join(sorted(sites))}")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight < math.inf:
            raise JobError(f"user weight of site '{site}' is {weight!r}; give a finite number, 0 or more")
