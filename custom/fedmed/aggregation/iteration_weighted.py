"""Federated averaging of differences with iteration and user weights (Yang et al. 2021, Eq. 2 and 3)."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.buffers import POLICIES, changed, classify, maximum, pooled_variance
from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.mean import BlockMean
from fedmed.aggregation.weighting import check_user_weights, iteration_weights
from fedmed.errors import FedMedError, JobError, RoundFailed, SharingError

_Senders = tuple[list[Contribution], list[float]]  # updates in order of site names, and their coefficients


class IterationWeighted:
    """The server's rule: every tensor moves by the weighted mean of its senders' differences.

    Args:
        normalise: divide by the senders' total weight; False is Eq. 3 as printed (see ``weighting``).
        user_weights: site -> weight, 0 or more; a site without one counts with 1.
        buffers: BatchNorm statistics: ``average`` or ``pooled`` (correct second moment); ``local`` statistics are
            private and do not arrive here.

    Raises:
        JobError: an unknown buffer policy, a user weight that is negative or not finite, or ``pooled`` without
            ``normalise``: a pooled variance needs coefficients that sum to 1.
    """

    def __init__(
        self, normalise: bool = True, user_weights: Mapping[str, float] | None = None, buffers: str = "average"
    ) -> None:
        if buffers not in POLICIES:
            raise JobError(f"buffer policy '{buffers}' is unknown; use one of {', '.join(POLICIES)}")
        if buffers == "pooled" and not normalise:
            raise JobError("buffers 'pooled' needs coefficients that sum to 1; set normalise to true or use 'average'")
        check_user_weights(user_weights or {})
        self.normalise, self.user_weights, self.buffers = normalise, dict(user_weights or {}), buffers

    def coefficients(self, updates: Sequence[Contribution]) -> dict[str, float]:
        """Return site -> coefficient of these updates, in order of site names, for a tensor that all of them send."""
        steps = {update.site: update.n_steps for update in updates}
        if len(steps) != len(updates):
            raise FedMedError(f"a site has two updates in one round: {sorted(u.site for u in updates)}")
        weights = {site: weight for site, weight in self.user_weights.items() if site in steps}
        return iteration_weights(steps, weights, self.normalise)

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
            FedMedError: two updates of one site, or no site has a weight above 0.
            SharingError: a name or shape that the model does not have, a changed constant, or a running variance
                without its mean.
        """
        if not updates:
            raise RoundFailed("there is no update to aggregate; the global model is unchanged")
        updates = sorted(updates, key=lambda update: update.site)
        self.coefficients(updates)  # refuses a round in which no site counts
        _check_fit(global_tensors, updates)
        mean, senders = BlockMean(), _SenderTable(self, updates)
        result = {}
        for name, base in global_tensors.items():
            sent, weights = senders.of(name)
            result[name] = self._one(name, global_tensors, sent, weights, mean) if sent else base
            if sent and not all_finite(result[name]):
                raise RoundFailed(f"aggregated tensor '{name}' is not finite in {base.dtype}; the model is unchanged")
        return result

    def _one(
        self, name: str, model: Mapping[str, Tensor], sent: list[Contribution], weights: list[float], mean: BlockMean
    ) -> Tensor:
        base, differences = model[name], [update.tensors[name] for update in sent]
        kind = classify(name, base)
        if kind == "constant":
            return base
        if kind == "counter":
            return maximum(base, differences)
        if kind == "running_var" and self.buffers == "pooled":
            partner = name.removesuffix("running_var") + "running_mean"
            if partner not in model or any(partner not in update.tensors for update in sent):
                raise SharingError(f"tensor '{name}' cannot be pooled without '{partner}' from the same sites")
            means = [update.tensors[partner] for update in sent]
            return pooled_variance(model[partner], base, means, differences, weights)
        moved = mean(base, differences, weights)
        # Coefficients above 1 in all (the printed Eq. 3 with user weights above 1) extrapolate: a variance may not.
        return moved.clamp_(min=0) if kind == "running_var" else moved


class _SenderTable:
    """Finds the senders of a tensor and their coefficients; each set of senders is weighed once."""

    def __init__(self, rule: IterationWeighted, updates: list[Contribution]) -> None:
        self._rule, self._updates = rule, updates
        self._known: dict[tuple[str, ...], _Senders] = {}

    def of(self, name: str) -> _Senders:
        sent = [update for update in self._updates if name in update.tensors]
        key = tuple(update.site for update in sent)
        if key not in self._known:
            self._known[key] = self._weigh(sent)
        return self._known[key]

    def _weigh(self, sent: list[Contribution]) -> _Senders:
        # Senders that all have weight 0 (no steps, or a user weight of 0) leave the tensor as it is.
        if not any(update.n_steps * self._rule.user_weights.get(update.site, 1.0) for update in sent):
            return [], []
        weights = self._rule.coefficients(sent)
        counted = [update for update in sent if weights[update.site]]
        return counted, [weights[update.site] for update in counted]


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
