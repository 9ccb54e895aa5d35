"""The mean of layers that several sites hold each to itself, for a site that has trained none."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.buffers import classify
from fedmed.errors import SharingError

WEIGHINGS = ("samples", "uniform")


def site_shares(samples: Mapping[str, int], weighing: str = "samples") -> dict[str, float]:
    """Return each site's share a_k = N_k / sum N (Fang et al. 2025, unseen site), or the same for all.

    Args:
        samples: site -> training samples N_k that it reported, 1 or more; with ``uniform`` they are not looked at.
        weighing: one of ``WEIGHINGS``.
    """
    if weighing == "uniform":
        return dict.fromkeys(sorted(samples), 1 / len(samples))
    total = sum(samples.values())
    return {site: samples[site] / total for site in sorted(samples)}


def mean_of_sites(tensors: Mapping[str, Mapping[str, Tensor]], shares: Mapping[str, float]) -> dict[str, Tensor]:
    """Return the weighted mean of each tensor over the sites, in new memory; no argument is modified.

    What all sites have alike comes out as it is, bit for bit, and which site has which values changes no bit: terms are
    added in the order of their size. Counters become the largest of the sites'.

    Args:
        tensors: site -> name -> tensor; the same names, shapes and dtypes at every site, on the CPU.
        shares: site -> share; they sum to 1.

    Raises:
        SharingError: a constant, such as a table of indices, that differs between the sites, or a mean that is not
            finite; names the tensor.
    """
    sites = sorted(tensors)
    names = list(tensors[sites[0]])
    return {name: _mean(name, [tensors[site][name] for site in sites], [shares[s] for s in sites]) for name in names}


@torch.no_grad()
def _mean(name: str, values: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    kind = classify(name, values[0])
    if kind == "counter":
        return torch.stack(list(values)).amax(dim=0)
    if kind == "constant":
        if not all(torch.equal(values[0], other) for other in values):
            raise SharingError(f"tensor '{name}' is a table of whole numbers that differs between the sites")
        return values[0].clone()
    every = torch.stack([value.double() for value in values])
    least = every.amin(dim=0)
    weights = torch.tensor(list(shares), dtype=torch.float64).view(-1, *[1] * values[0].dim())
    terms = ((every - least) * weights).sort(dim=0).values
    above = torch.zeros_like(least)
    for term in terms:
        above = above + term
    mean = torch.where(above == 0, least, least + above).to(values[0].dtype)  # -0.0 + 0.0 would be another number
    if not all_finite(mean):
        raise SharingError(f"the mean of tensor '{name}' over the sites is not finite")
    return mean.contiguous()
