"""Contrast between labelled frames: NT-Xent (Chen et al. 2020) with the positives that labels give."""

import torch
import torch.nn.functional as F
from torch import Tensor

from fedmed.errors import FedMedError


def nt_xent(features: Tensor, labels: Tensor, temperature: float = 0.1) -> Tensor:
    """Draw frames of one class together and away from those of other classes: Kassem et al. 2023, Eq. 4 and 5.

    For an anchor a and another frame p of its class, F_n being the frames of all other classes::

        (4)  ℓ(a, p) = −log( e^(cos(a, p) / τ) / (e^(cos(a, p) / τ) + Σ_{f in F_n} e^(cos(a, f) / τ)) )
        (5)  L = mean of ℓ over all ordered pairs (a, p) of one class

    Further frames of the anchor's class are not in the denominator, unlike in SupCon (arXiv 2004.11362). Without two
    frames of one class, or with one class alone, L is 0, and so are its gradients.

    Args:
        features: (B, D), of any float type; computed in float32, or in float64 if they are.
        labels: (B,) whole numbers.
        temperature: τ > 0.

    Returns:
        A scalar, 0 or more.

    Raises:
        FedMedError: shapes do not fit, or the temperature is not positive.
    """
    if temperature <= 0:
        raise FedMedError(f"NT-Xent: temperature is {temperature}; use a positive number, such as 0.1")
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise FedMedError(
            f"NT-Xent: shapes are {tuple(features.shape)} and {tuple(labels.shape)}; give (B, D) and (B,)"
        )
    features = features if features.dtype == torch.float64 else features.float()
    unit = F.normalize(features, dim=1, eps=1e-8)
    similar = unit @ unit.T / temperature
    same = labels[:, None] == labels[None, :]
    positive = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    # The smallest number, not −inf: of a batch without negatives the gradient would not be a number.
    negatives = similar.masked_fill(same, torch.finfo(similar.dtype).min).logsumexp(dim=1, keepdim=True)
    losses = F.softplus(negatives - similar)  # Eq. 4 of every pair, divided by e^(cos(a, p) / τ)
    return (losses * positive).sum() / positive.sum().clamp(min=1)  # Eq. 5
