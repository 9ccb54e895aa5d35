"""From frames to probabilities."""

from collections.abc import Callable
from typing import Any

import torch
from monai.inferers import Inferer
from torch import Tensor


class SigmoidInferer(Inferer):
    """Probabilities (B, J) of frames (B, 3, H, W): each tool for itself, they do not sum to 1."""

    def __call__(self, inputs: Tensor, network: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        return torch.sigmoid(network(inputs, *args, **kwargs))
