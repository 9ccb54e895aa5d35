"""Telling what an image shows apart from where it comes from, in a network's features (Fang et al. 2025).

A feature map of synthetic images is taken for a sum, F_sy = D_sy + I_sy: D_sy is a learned descriptor of their domain,
and the rest belongs to the instruments. Both penalties are means over all entries of the map.
"""

import torch
from torch import Tensor

from fedmed.errors import FedMedError


def moving_average(earlier: Tensor | None, new: Tensor, mu: float) -> Tensor:
    """Return ``(1 - mu) · earlier + mu · new``; ``new`` where there is no earlier one (Fang et al. 2025, Eq. 10).

    Args:
        earlier: the average so far, or None in the first round.
        new: the round's own, of the same shape.
        mu: weight of the new one, in [0, 1].

    Raises:
        FedMedError: ``mu`` is outside its range, or the shapes differ.
    """
    if not 0 <= mu <= 1:
        raise FedMedError(f"moving average: mu is {mu}; use a number from 0 to 1")
    if earlier is None:
        return new.clone()
    if earlier.shape != new.shape:
        raise FedMedError(
            f"moving average: the earlier one has shape {tuple(earlier.shape)}, the new one {tuple(new.shape)}; "
            "features of one network and image size are needed"
        )
    return torch.lerp(earlier, new, mu)


def descriptor_penalty(features: Tensor, domain: Tensor, average: Tensor) -> Tensor:
    """Return ``mean((F_sy - D_sy - F̂_g)²)``, the second term of Fang et al. 2025, Eq. 11, without its weight.

    It draws the instruments' part of the pre-trained network's features to what the federation's network makes of them.

    Args:
        features: F_sy of a batch (B, c, h, w), of the pre-trained network.
        domain: D_sy (c, h, w), or (c, 1, 1) where one descriptor stands for all places.
        average: F̂_g, of the same shape as ``domain``; its gradient is not taken.

    Returns:
        A scalar, 0 or more.

    Raises:
        FedMedError: shapes that do not fit.
    """
    _check("the domain descriptor", features, domain)
    _check("the average feature", features, average)
    return (features - domain - average.detach()).square().mean()


def instrument_penalty(features: Tensor, synthetic: Tensor, domain: Tensor) -> Tensor:
    """Return ``mean((F_g - (F_sy - D_sy))²)``, the second term of Fang et al. 2025, Eq. 12, without its weight.

    It draws the averaged network's features to the instruments' part of the pre-trained network's.

    Args:
        features: F_g of a batch (B, c, h, w), of the averaged network.
        synthetic: F_sy of the same batch; its gradient is not taken.
        domain: D_sy (c, h, w) or (c, 1, 1), likewise.

    Returns:
        A scalar, 0 or more.

    Raises:
        FedMedError: shapes that do not fit.
    """
    if features.shape != synthetic.shape:
        raise FedMedError(
            f"the averaged network's features have shape {tuple(features.shape)}, the pre-trained network's "
            f"{tuple(synthetic.shape)}; both networks must be the same"
        )
    _check("the domain descriptor", features, domain)
    return (features - (synthetic - domain).detach()).square().mean()


def _check(what: str, features: Tensor, map: Tensor) -> None:
    whole, pooled = features.shape[1:], (features.shape[1], *[1] * (features.ndim - 2))
    if map.shape != whole and tuple(map.shape) != pooled:
        raise FedMedError(
            f"{what} has shape {tuple(map.shape)}, features of these images have {tuple(whole)}; use images of one "
            "size, or a descriptor that is the same at all places"
        )
