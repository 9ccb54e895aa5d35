"""InfoNCE (van den Oord et al. 2018; MoCo, He et al. 2020, Eq. 1)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from fedmed.errors import FedMedError


def info_nce(positive: Tensor, negatives: Tensor, temperature: float) -> Tensor:
    """Return ``-log(e^(s⁺/τ) / (e^(s⁺/τ) + Σ_j e^(s_j/τ)))``, mean over the batch.

    MONAI's ``ContrastiveLoss`` takes its negatives from the batch, not from a queue.

    Args:
        positive: similarity of each query to its key, shape (B,).
        negatives: similarities of each query to the N negatives, shape (B, N); -inf for one that does not count.
        temperature: τ > 0.

    Raises:
        FedMedError: shapes do not fit, or the temperature is not positive.
    """
    if temperature <= 0:
        raise FedMedError(f"InfoNCE: temperature is {temperature}; use a positive number, such as 0.2")
    if positive.ndim != 1 or negatives.ndim != 2 or len(positive) != len(negatives):
        raise FedMedError(f"InfoNCE: shapes {tuple(positive.shape)} and {tuple(negatives.shape)}; give (B,) and (B, N)")
    logits = torch.cat([positive[:, None], negatives], dim=1) / temperature
    return F.cross_entropy(logits, logits.new_zeros(len(logits), dtype=torch.long))


def contrast_scalars(queries: Tensor, positive: Tensor, negatives: Tensor) -> dict[str, Tensor]:
    """Measure how well queries (B, d) find their keys, as detached scalars; similarities as for :func:`info_nce`.

    ``contrastive_accuracy``: the share of queries that are nearer to their key than to any negative;
    ``positive_similarity``, their mean similarity to it; ``zero_rows``: the share of queries that are all 0.
    """
    return {
        "contrastive_accuracy": (positive > negatives.amax(dim=1)).float().mean().detach(),
        "positive_similarity": positive.detach().mean(),
        "zero_rows": (queries.detach().abs().amax(dim=1) == 0).float().mean(),
    }
