"""From frames to probabilities."""

from collections.abc import Callable
from typing import Any

import torch
from monai.inferers import Inferer
from torch import Tensor


class SoftmaxInferer(Inferer):
    """Probabilities (B, C) of frames (B, 3, H, W): of one phase each, they sum to 1."""

    def __call__(self, inputs: Tensor, network: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        return torch.softmax(network(inputs, *args, **kwargs), dim=1)


class FeatureInferer(Inferer):
    """Features (B, F), float32, of frames (B, 3, H, W); the temporal stages need those of a whole video."""

    def __call__(self, inputs: Tensor, network: Any, *args: Any, **kwargs: Any) -> Tensor:
        features: Tensor = network.features(inputs)
        return features.float()
