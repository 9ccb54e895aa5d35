"""Updates along the directions that most sites have in common (FedLD, Zeng et al., MICCAI 2024, arXiv 2408.12300)."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.rule import Outcome, RoundFacts
from fedmed.aggregation.tensor_means import Senders, TensorMeans
from fedmed.aggregation.weighted_mean import FIRST, UniformWeighting, WeightedMean
from fedmed.in_range import in_range

# Elements whose products are summed at once: torch gives a sum of 32768 or more to several threads, and then its last
# bits depend on how many there are.
BLOCK = 16_384
NOTHING = 1e-12  # a direction's share of the whole, or a cosine, below which there is only rounding


class DirectionsMean(WeightedMean):
    """Every site's update is replaced by what lies along the strongest common directions; then all count the same.

    Each parameter has directions of its own, see :func:`direction_weights`. In the first round, for a parameter of one
    number and for BatchNorm's statistics it is the plain mean.

    Args:
        share: of the senders, above 0, at most 1: so many directions are kept, rounded down, one at least.
        buffers, clip_norm: as in :class:`fedmed.aggregation.weighted_mean.WeightedMean`.

    Raises:
        JobError: a value outside its range.
    """

    def __init__(self, share: float = 0.8, buffers: str = "average", clip_norm: float | None = None) -> None:
        super().__init__(UniformWeighting(), buffers=buffers, clip_norm=clip_norm)
        self._plain = self._tensors
        self._directed = _DirectedTensors(buffers, in_range("share", share, above=0, most=1))

    def aggregate(
        self, model: Mapping[str, Tensor], updates: Sequence[Contribution], facts: RoundFacts = FIRST
    ) -> Outcome:
        self._tensors = self._directed if facts.round else self._plain
        return super().aggregate(model, updates, facts)


class _DirectedTensors(TensorMeans):
    def __init__(self, buffers: str, share: float) -> None:
        super().__init__(buffers, None)
        self.share = share

    def weights(self, differences: Sequence[Tensor], senders: Senders) -> Sequence[float]:
        if differences[0].numel() == 1:
            return senders.weights
        scales = torch.tensor(list(senders.scales), dtype=torch.float64)
        return direction_weights(gram(differences) * torch.outer(scales, scales), self.share)


def direction_weights(products: Tensor, share: float) -> list[float]:
    """Return c_l, with which ``Σ_l c_l g_l`` is the step that FedLD makes of the updates g_1 … g_K.

    ::

        G Gᵀ / K = Σ_j s_j v_j v_jᵀ,   s_1 ≥ s_2 ≥ …,   w_j = Gᵀ v_j
        step = mean over i of  Σ_{j ≤ k} (s_j / Σ s) · ‖g_i‖ · sign(g_i · w_j) · w_j / ‖w_j‖

    A projection of g_i on w_j keeps only its sign, since it gets the length of g_i. With ``g_i · w_j = K s_j v_ji`` and
    ``‖w_j‖² = K s_j`` everything follows from the products of updates. What is orthogonal to w_j, up to rounding, adds
    nothing. Where two directions are as strong as each other, the decomposition decides which one comes first.

    Args:
        products: G Gᵀ, (K, K), float64.
        share: of the K directions that are kept.
    """
    count = len(products)
    strengths, vectors = torch.linalg.eigh(products / count)  # ascending
    total, norms = float(strengths.clamp_min(0).sum()), products.diagonal().clamp_min(0).sqrt()
    weights = torch.zeros(count, dtype=torch.float64)
    if not total:
        return weights.tolist()  # nobody has moved
    kept = max(1, math.floor(round(share * count, 9)))  # 0.07 * 100 is 7.000000000000001
    for place in range(count - 1, count - 1 - kept, -1):
        strength, vector = float(strengths[place]), vectors[:, place]
        if strength / total < NOTHING:
            continue
        length = math.sqrt(count * strength)
        along = length * vector  # of g_i, on w_j / ‖w_j‖
        signs = torch.where(along.abs() > NOTHING * norms, along.sign(), 0.0)
        weights += strength / total * float((norms * signs).mean()) / length * vector
    return weights.tolist()


@torch.no_grad()
def gram(rows: Sequence[Tensor]) -> Tensor:
    """Return the products of all pairs of K tensors, (K, K) float64; the same bits on any number of threads."""
    flat = [row.reshape(-1) for row in rows]
    products = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for start in range(0, flat[0].numel(), BLOCK):
        blocks = [row[start : start + BLOCK].double() for row in flat]
        for i, one in enumerate(blocks):
            for j, other in enumerate(blocks[: i + 1]):
                products[i, j] += (one * other).sum()
    return products + products.tril(-1).T
