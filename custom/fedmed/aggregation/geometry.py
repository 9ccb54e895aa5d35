"""Similarity and distance of each update of a round to their mean."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.sharing import classify

BLOCK = 1 << 16  # numbers of each update that are looked at together


@torch.no_grad()
def update_geometry(updates: Sequence[Contribution], coefficients: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Compare each update with the weighted mean of all of them (Markert 2022, Eq. 4.19 and 4.20).

    The mean is that of the sites' differences, before any optimizer of the server. Only parameters that every update
    holds are compared: with private layers those that all sites share.

    Args:
        updates: of one round; ``tensors`` hold differences.
        coefficients: site -> weight in the mean; a site without one takes no part.

    Returns:
        Site -> ``norm`` of its update; ``distance``, the squared L2 distance to the mean; and ``cosine`` to it, -1…1,
        left out where either of the two is zero. Nothing of a single update.
    """
    counted = [update for update in updates if coefficients.get(update.site)]
    total = sum(coefficients[update.site] for update in counted)
    if len(counted) < 2 or not total:
        return {}
    weights = torch.tensor([coefficients[update.site] / total for update in counted], dtype=torch.float64)
    weights[0] = 0  # The first update is u; the others are u + d, and the mean is u + m.
    squares, to_first, to_mean = _products([update.tensors for update in counted], weights)
    first, first_mean = to_first[0].clone(), to_mean[0].clone()
    for products in (squares, to_first, to_mean):
        products[0] = 0  # the first update's d is zero
    mean = weights @ to_mean
    # Distances come from d and m alone, so what all have in common takes no digits away.
    distances = (squares - 2 * to_mean + mean).clamp_min(0)
    norms = (first + 2 * to_first + squares).clamp_min(0).sqrt()
    length = (first + 2 * first_mean + mean).clamp_min(0).sqrt()
    dots = first + to_first + first_mean + to_mean
    geometry = {}
    for place, update in enumerate(counted):
        geometry[update.site] = {"norm": float(norms[place]), "distance": float(distances[place])}
        if norms[place] * length > 0:
            geometry[update.site]["cosine"] = float((dots[place] / (norms[place] * length)).clamp(-1, 1))
    return geometry


def _products(updates: Sequence[Mapping[str, Tensor]], weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return squares of u and each d, their products with u, and with m; (K,) each, float64 sums over blocks."""
    squares, to_first, to_mean = torch.zeros(3, len(updates), dtype=torch.float64)
    for name, first in updates[0].items():
        if classify(name, first) != "parameter" or not all(name in update for update in updates):
            continue
        kind = torch.promote_types(first.dtype, torch.float32)
        rows = [update[name].reshape(-1).to(kind) for update in updates]
        buffer, shares = torch.empty(len(rows), min(BLOCK, first.numel()), dtype=kind), weights.to(kind)
        for start in range(0, first.numel(), BLOCK):
            block = buffer[:, : len(rows[0][start : start + BLOCK])]
            block[0] = rows[0][start : start + BLOCK]
            for place, row in enumerate(rows[1:], start=1):
                torch.sub(row[start : start + BLOCK], block[0], out=block[place])
            to_first += block @ block[0]
            to_mean += block @ (shares @ block)
            squares += torch.linalg.vector_norm(block, dim=1).double().square()
    return squares, to_first, to_mean
