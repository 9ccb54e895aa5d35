"""How the updates of a round lie to one another: what each has in common with their mean, and how far it is from it."""

from collections.abc import Mapping, Sequence

import torch

from fedmed.aggregation.buffers import classify
from fedmed.aggregation.contribution import Contribution

BLOCK = 1 << 18  # numbers of each update that are looked at together, in float64


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
    squares, dots, apart = (torch.zeros(len(counted), dtype=torch.float64) for _ in range(3))
    length = torch.zeros((), dtype=torch.float64)
    for name, first in counted[0].tensors.items():
        if classify(name, first) != "parameter" or not all(name in update.tensors for update in counted):
            continue
        rows = [update.tensors[name].reshape(-1) for update in counted]
        for start in range(0, first.numel(), BLOCK):
            block = torch.stack([row[start : start + BLOCK].double() for row in rows])
            mean = weights @ block
            squares, dots, length = squares + block.square().sum(1), dots + block @ mean, length + mean @ mean
            apart = apart + (block - mean).square().sum(1)
    products, found = squares.sqrt() * length.sqrt(), {}
    for place, update in enumerate(counted):
        own = {"norm": float(squares[place].sqrt()), "distance": float(apart[place])}
        own |= {"cosine": float(dots[place] / products[place])} if products[place] > 0 else {}
        found[update.site] = own
    return found
