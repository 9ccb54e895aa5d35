"""Means of each kind of tensor from its senders' differences: parameters, BatchNorm statistics, counters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.robust import RobustAggregator, middle_counter
from fedmed.aggregation.sharing import changed, classify, maximum, pooled_variance
from fedmed.errors import RoundFailed, SharingError

# Elements a block: two float64 blocks are 2 MiB, about a core's cache. An `add_` of float32 onto float64 converts
# element by element and is several times slower than converting a block into scratch memory first.
BLOCK = 131_072


@dataclass(frozen=True)
class Senders:
    """Senders of a tensor, in order of site names.

    Attributes:
        updates: theirs.
        weights: coefficient of each, not 0.
        scales: what clipping leaves of each update, [0, 1].
    """

    updates: Sequence[Contribution]
    weights: Sequence[float]
    scales: Sequence[float]

    def differences(self, name: str) -> list[Tensor]:
        """Return their differences of a tensor, as they were sent."""
        return [update.tensors[name] for update in self.updates]


class SenderTable:
    """Finds the senders of a tensor; each set of senders is weighed once.

    Args:
        updates: of one round, sorted by site.
        coefficients: gives site -> coefficient of some updates, of which one at least counts.
        user_weights: site -> weight; a site without one counts with 1.
        scales: site -> what clipping leaves of its update.
    """

    def __init__(
        self,
        updates: Sequence[Contribution],
        coefficients: Callable[[Sequence[Contribution]], Mapping[str, float]],
        user_weights: Mapping[str, float],
        scales: Mapping[str, float],
    ) -> None:
        self._updates, self._coefficients = updates, coefficients
        self._user_weights, self._scales = user_weights, scales
        self._known: dict[tuple[str, ...], Senders] = {}

    def of(self, name: str) -> Senders:
        """Return who counts for a tensor; nobody if none of its senders does."""
        sent = [update for update in self._updates if name in update.tensors]
        key = tuple(update.site for update in sent)
        if key not in self._known:
            self._known[key] = self._weigh(sent)
        return self._known[key]

    def _weigh(self, sent: list[Contribution]) -> Senders:
        # Senders that all have weight 0 (no steps, or a user weight of 0) leave the tensor as it is.
        if not any(update.n_steps * self._user_weights.get(update.site, 1.0) for update in sent):
            return Senders([], [], [])
        weights = self._coefficients(sent)
        counted = [update for update in sent if weights[update.site]]
        sites = [update.site for update in counted]
        return Senders(counted, [weights[site] for site in sites], [self._scales[site] for site in sites])


class BlockMean:
    """Computes ``base + sum_k c_k * difference_k`` in float64, block by block, with scratch memory that is reused.

    Beyond its arguments it holds the result and two blocks.
    """

    def __init__(self, block: int = BLOCK) -> None:
        self._sum = torch.empty(block, dtype=torch.float64)
        self._term = torch.empty(block, dtype=torch.float64)

    @torch.no_grad()
    def __call__(
        self, base: Tensor, differences: Sequence[Tensor], coefficients: Sequence[float], exact: bool = False
    ) -> Tensor:
        """Return a new tensor with the shape of ``base``, and its dtype.

        Args:
            base: global tensor, floating point, any shape, on the CPU.
            differences: one tensor of the same shape for each coefficient; they are added in this order.
            coefficients: weight of each difference.
            exact: return float64, as it was computed.
        """
        flat, terms = base.reshape(-1), [difference.reshape(-1) for difference in differences]
        result = torch.empty_like(flat, dtype=torch.float64 if exact else flat.dtype)
        for start in range(0, flat.numel(), len(self._sum)):
            stop = min(start + len(self._sum), flat.numel())
            total, scratch = self._sum[: stop - start], self._term[: stop - start]
            total.copy_(flat[start:stop])
            # Not `add_(..., alpha=)`: torch fuses that into one rounding in some lanes and not in others, and which
            # lane an element falls into depends on the number of threads.
            for term, coefficient in zip(terms, coefficients, strict=True):
                total.add_(scratch.copy_(term[start:stop]).mul_(coefficient))
            result[start:stop].copy_(total)
        return result.view(base.shape)


class TensorMeans:
    """Moves every tensor of a model by what its senders say.

    Args:
        buffers: BatchNorm statistics: ``average`` or ``pooled``.
        middle: a robust middle in place of the weighted mean; None: the mean.
        exact: return means of parameters in float64, for a step that takes differences from them.
    """

    def __init__(self, buffers: str, middle: RobustAggregator | None, exact: bool = False) -> None:
        self.buffers, self.middle, self.exact = buffers, middle, exact

    def __call__(self, model: Mapping[str, Tensor], table: SenderTable) -> dict[str, Tensor]:
        """Return new tensors, or the very same object where no site that counts sent it.

        Raises:
            RoundFailed: a result is not finite.
            SharingError: a running variance that is pooled without its mean.
        """
        mean, result = BlockMean(), {}
        for name, base in model.items():
            senders = table.of(name)
            result[name] = self._one(name, model, senders, mean) if senders.updates else base
            if senders.updates and not all_finite(result[name]):
                raise RoundFailed(f"aggregated tensor '{name}' is not finite in {base.dtype}; the model is unchanged")
        return result

    def weights(self, differences: Sequence[Tensor], senders: Senders) -> Sequence[float]:
        """Return the factors of a parameter's differences, before ``scales``: the senders' coefficients."""
        return senders.weights

    def _one(self, name: str, model: Mapping[str, Tensor], senders: Senders, mean: BlockMean) -> Tensor:
        base, differences = model[name], senders.differences(name)
        kind = classify(name, base)
        if kind == "constant":
            return base
        if kind == "counter":
            return middle_counter(base, differences) if self.middle else maximum(base, differences)
        if kind == "running_var" and self.buffers == "pooled":
            return _pooled(name, model, senders).clamp_(min=0)
        if self.middle:
            moved = self.middle(name, base, differences, senders.scales)
        else:
            weights = self.weights(differences, senders) if kind == "parameter" else senders.weights
            scaled = [weight * scale for weight, scale in zip(weights, senders.scales, strict=True)]
            moved = mean(base, differences, scaled, exact=self.exact and kind == "parameter")
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


def check_fit(model: Mapping[str, Tensor], updates: Sequence[Contribution]) -> None:
    """Refuse updates that do not fit the model, by a SharingError that names site and tensor."""
    for update in updates:
        for name, difference in update.tensors.items():
            if name not in model:
                raise SharingError(f"site '{update.site}' sends tensor '{name}', which the model does not have")
            if difference.shape != model[name].shape:
                shapes = f"{tuple(difference.shape)}, in the model {tuple(model[name].shape)}"
                raise SharingError(f"site '{update.site}': tensor '{name}' has shape {shapes}")
            if classify(name, model[name]) == "constant" and changed(difference):
                raise SharingError(f"site '{update.site}' changed tensor '{name}', a constant; make it private")
