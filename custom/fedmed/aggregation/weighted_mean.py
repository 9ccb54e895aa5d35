"""Federated averaging of differences with weights (Yang et al. 2021, Eq. 2 and 3, and others), or robustly."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.buffers import POLICIES, changed, classify, maximum, pooled_variance
from fedmed.aggregation.clipping import check_bound, clip_factors, update_norms
from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.mean import BlockMean
from fedmed.aggregation.robust import middle_counter, middle_mean
from fedmed.aggregation.senders import Senders, SenderTable
from fedmed.aggregation.weighting import Weighting, check_user_weights, site_weights
from fedmed.errors import FedMedError, JobError, RoundFailed, SharingError


class WeightedMean:
    """The server's rule: every tensor moves by the weighted mean, or the robust middle, of its senders' differences.

    Args:
        normalise: divide by the senders' total weight; False is Eq. 3 as printed (see ``weighting``).
        user_weights: site -> weight, 0 or more; a site without one counts with 1.
        buffers: BatchNorm statistics: ``average`` or ``pooled`` (correct second moment); ``local`` statistics are
            private and do not arrive here.
        rule: ``mean``, or ``median`` or ``trimmed_mean`` for a federation that does not trust every site (see
            ``robust``). These two give every sender one vote; a user weight may only be 0, which leaves a site out.
        trim: fraction of the senders that ``trimmed_mean`` drops at each end.
        clip_norm: an update with a larger L2 norm is scaled down to it before any rule; None bounds nothing.
        weighting: what a site counts by, times its user weight: ``iterations``, ``samples``, ``uniform``, or a mapping
            such as ``{by: reported, name: …}`` (see :class:`fedmed.aggregation.weighting.Weighting`).

    Raises:
        JobError: an unknown buffer policy, a user weight that is negative or not finite, or ``pooled`` without
            ``normalise``: a pooled variance needs coefficients that sum to 1. Or an unknown rule, a number out of
            range, or a robust rule together with what only a weighted mean has.
    """

    def __init__(
        self,
        normalise: bool = True,
        user_weights: Mapping[str, float] | None = None,
        buffers: str = "average",
        rule: str = "mean",
        trim: float | None = None,
        clip_norm: float | None = None,
        weighting: str | Mapping[str, Any] = "iterations",
    ) -> None:
        if buffers not in POLICIES:
            raise JobError(f"buffer policy '{buffers}' is unknown; use one of {', '.join(POLICIES)}")
        if buffers == "pooled" and not normalise:
            raise JobError("buffers 'pooled' needs coefficients that sum to 1; set normalise to true or use 'average'")
        check_user_weights(user_weights or {})
        check_bound("clip_norm", clip_norm)
        self.normalise, self.user_weights, self.buffers = normalise, dict(user_weights or {}), buffers
        self.clip_norm, self.weighting = clip_norm, Weighting.parse(weighting)
        if rule != "mean" and self.weighting.by not in ("iterations", "uniform"):
            raise JobError(f"'weighting' '{self.weighting.by}' has no meaning under rule '{rule}': one vote a sender")
        self._middle = middle_mean(rule, trim, normalise, self.user_weights, buffers)

    def coefficients(self, updates: Sequence[Contribution], kind: str | None = None) -> dict[str, float]:
        """Return site -> coefficient of these updates, in order of site names, for a tensor that all of them send.

        Under a robust rule each site's share of the votes.

        Args:
            updates: the senders.
            kind: what the round is weighed by; None: these are all updates of the round, which says it.
        """
        sites = {update.site for update in updates}
        if len(sites) != len(updates):
            raise FedMedError(f"a site has two updates in one round: {sorted(u.site for u in updates)}")
        weights = {site: weight for site, weight in self.user_weights.items() if site in sites}
        amounts = self.weighting.amounts(kind or self._kind(updates), updates, weights)
        coefficients = site_weights(amounts, weights, self.normalise)
        if self._middle is None:
            return coefficients
        votes = sum(1 for coefficient in coefficients.values() if coefficient)
        return {site: 1 / votes if coefficient else 0.0 for site, coefficient in coefficients.items()}

    def _kind(self, updates: Sequence[Contribution]) -> str:
        return self.weighting.of_round(updates, self.user_weights)[0]

    def check_senders(self, senders: Mapping[str, int]) -> None:
        """Refuse a robust rule for what too few sites send.

        Args:
            senders: what, in words for the error -> number of sites that send it.

        Raises:
            JobError: names what and how many.
        """
        for what, count in senders.items():
            if self._middle:
                self._middle.check_senders(what, count)

    def aggregate(self, global_tensors: Mapping[str, Tensor], updates: Sequence[Contribution]) -> dict[str, Tensor]:
        """Return the next model; no argument is modified and the result does not depend on the order of updates.

        Each tensor is averaged over the updates that contain it, with coefficients of those senders alone. A site
        whose coefficient is 0 counts as no sender.

        Args:
            global_tensors: name -> tensor of any shape, on the CPU.
            updates: accepted updates of one round; ``tensors`` hold differences to ``global_tensors``.

        Returns:
            Every name of ``global_tensors``, with its shape and dtype: a new tensor, or the very same object where
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
        kind = self._kind(updates)
        self.coefficients(updates, kind)  # refuses a round in which no site counts
        _check_fit(global_tensors, updates)
        scales = clip_factors(update_norms(updates), self.clip_norm) if self.clip_norm else {}
        weigh = partial(self.coefficients, kind=kind)
        table = SenderTable(updates, weigh, self.user_weights, {u.site: 1.0 for u in updates} | scales)
        mean, result = BlockMean(), {}
        for name, base in global_tensors.items():
            senders = table.of(name)
            result[name] = self._one(name, global_tensors, senders, mean) if senders.updates else base
            if senders.updates and not all_finite(result[name]):
                raise RoundFailed(f"aggregated tensor '{name}' is not finite in {base.dtype}; the model is unchanged")
        return result

    def _one(self, name: str, model: Mapping[str, Tensor], senders: Senders, mean: BlockMean) -> Tensor:
        base, differences = model[name], senders.differences(name)
        kind = classify(name, base)
        if kind == "constant":
            return base
        if kind == "counter":
            return middle_counter(base, differences) if self._middle else maximum(base, differences)
        if kind == "running_var" and self.buffers == "pooled":
            return _pooled(name, model, senders).clamp_(min=0)
        if self._middle:
            moved = self._middle(name, base, differences, senders.scales)
        else:
            weights = [weight * scale for weight, scale in zip(senders.weights, senders.scales, strict=True)]
            moved = mean(base, differences, weights)
        # Coefficients above 1 in all (the printed Eq. 3 with user weights above 1) extrapolate, and a site may send
        # anything, such as noise: a variance below 0 would make every output NaN.
        return moved.clamp_(min=0) if kind == "running_var" else moved


def _pooled(name: str, model: Mapping[str, Tensor], senders: Senders) -> Tensor:
    partner = name.removesuffix("running_var") + "running_mean"
    if partner not in model or any(partner not in update.tensors for update in senders.updates):
        raise SharingError(f"tensor '{name}' cannot be pooled without '{partner}' from the same sites")
    means, variances = (
        [d.double() * scale for d, scale in zip(senders.differences(key), senders.scales, strict=True)]
        for key in (partner, name)
    )
    return pooled_variance(model[partner], model[name], means, variances, senders.weights)


def _check_fit(model: Mapping[str, Tensor], updates: Sequence[Contribution]) -> None:
    for update in updates:
        for name, difference in update.tensors.items():
            if name not in model:
                raise SharingError(f"site '{update.site}' sends tensor '{name}', which the model does not have")
            if difference.shape != model[name].shape:
                shapes = f"{tuple(difference.shape)}, in the model {tuple(model[name].shape)}"
                raise SharingError(f"site '{update.site}': tensor '{name}' has shape {shapes}")
            if classify(name, model[name]) == "constant" and changed(difference):
                raise SharingError(f"site '{update.site}' changed tensor '{name}', a constant; make it private")
