"""From images to probabilities."""

from collections.abc import Callable
from typing import Any

import torch
from monai.inferers import Inferer
from torch import Tensor


class CalibratedInferer(Inferer):
    """Probabilities (B, C) of images (B, 1, H, W): softmax of the network's logits divided by its ``temperature``.

    The temperature is the network's own tensor, so weights and calibration cannot be mixed up; it also exists in
    TorchScript, where other methods of the network do not.
    """

    def __call__(self, inputs: Tensor, network: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        return torch.softmax(network(inputs, *args, **kwargs) / network.temperature, dim=1)


class ProbabilityInferer(Inferer):
    """Probabilities (B, C) of images (B, 1, H, W): softmax of what the network returns; used in training."""

    def __call__(self, inputs: Tensor, network: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        return torch.softmax(network(inputs, *args, **kwargs), dim=1)
