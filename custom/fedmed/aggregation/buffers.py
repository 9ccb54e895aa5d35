"""What happens to tensors that no optimizer moves: BatchNorm statistics, counters and constants."""

from collections.abc import Sequence

import torch
from torch import Tensor

POLICIES = ("average", "pooled", "local")
_SUFFIXES = ("running_mean", "running_var", "num_batches_tracked")


def classify(name: str, tensor: Tensor) -> str:
    """Return how a named tensor is aggregated.

    ``parameter``
        floating point: weighted mean.
    ``running_mean``, ``running_var``
        BatchNorm statistics, by the last part of the name: as the buffer policy says.
    ``counter``
        an integer ``num_batches_tracked``: the maximum over the senders, never a mean.
    ``constant``
        any other integer or boolean tensor (an index table, a mask): a mean has no meaning, so a site may not change
        it. One that training does change, like the pointer of a queue, must be private.
    """
    last = name.rpartition(".")[2]
    if tensor.is_floating_point():
        return last if last in _SUFFIXES[:2] else "parameter"
    return "counter" if last == _SUFFIXES[2] else "constant"


def is_batch_norm_buffer(name: str) -> bool:
    """Whether the name is that of a BatchNorm statistic or counter; ``buffers: local`` keeps these at the site."""
    return name.rpartition(".")[2] in _SUFFIXES


def changed(difference: Tensor) -> bool:
    """Whether a difference has any element other than zero (or False)."""
    return bool(difference.count_nonzero())


def maximum(base: Tensor, differences: Sequence[Tensor]) -> Tensor:
    """Return the element-wise maximum over the senders of ``base + difference``, exact, in the dtype of ``base``."""
    values = [base + difference for difference in differences]
    return torch.stack(values).amax(dim=0).to(base.dtype)


@torch.no_grad()
def pooled_variance(
    mean: Tensor,
    variance: Tensor,
    mean_differences: Sequence[Tensor],
    variance_differences: Sequence[Tensor],
    coefficients: Sequence[float],
) -> Tensor:
    """Return the variance of the sites' pooled activations, ``sum_k c_k (var_k + (mean_k - pooled mean)^2)``.

    Equal to ``sum_k c_k (var_k + mean_k^2) - (sum_k c_k mean_k)^2``, without its cancellation.

    Args:
        mean: global running mean, shape (channels,).
        variance: global running variance, same shape, which gives the result's dtype.
        mean_differences, variance_differences: one for each site, same shape.
        coefficients: one for each site; they must sum to 1.
    """
    weights = torch.tensor(list(coefficients), dtype=torch.float64).view(-1, *[1] * mean.dim())
    means = torch.stack([mean.double() + difference.double() for difference in mean_differences])
    variances = torch.stack([variance.double() + difference.double() for difference in variance_differences])
    spread = means - (weights * means).sum(dim=0)
    return (weights * (variances + spread.square())).sum(dim=0).to(variance.dtype)
