"""From an image to probabilities: of a patch in training, of a full volume in inference."""

from collections.abc import Callable
from typing import Any

import torch
from monai.inferers import Inferer, SlidingWindowInferer
from torch import Tensor


def foreground_probability(logits: Tensor) -> Tensor:
    """Probability of channel 1, shape (B, 1, ...), of two-channel logits (B, 2, ...)."""
    return torch.softmax(logits, dim=1)[:, 1:2]


class ForegroundInferer(Inferer):
    """Foreground probability (B, 1, X, Y, Z) of patches (B, 1, X, Y, Z); used in training."""

    def __call__(self, inputs: Tensor, network: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        return foreground_probability(network(inputs, *args, **kwargs))


class ProbabilityWindowInferer(SlidingWindowInferer):
    """Sliding windows whose softmax probabilities are averaged where they overlap.

    MONAI's own inferer averages what the network returns, here logits; the paper (Yang et al. 2021) averages
    patch-wise probabilities, and thresholds afterwards. Arguments are those of
    :class:`monai.inferers.SlidingWindowInferer`.

    Returns:
        Probabilities (B, 2, X, Y, Z) in [0, 1]; the two channels sum to 1. Volumes smaller than a window are padded
        with 0, which is air, and the result is cropped back.
    """

    def __call__(self, inputs: Tensor, network: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        def probabilities(window: Tensor, *more: Any, **named: Any) -> Tensor:
            return torch.softmax(network(window, *more, **named), dim=1)

        return super().__call__(inputs, probabilities, *args, **kwargs)
