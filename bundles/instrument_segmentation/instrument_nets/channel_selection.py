"""A site's own vector chooses among the channels of its maps."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class ChannelSelection(nn.Module):
    """F' of Fang et al. 2025 (arXiv), Eq. 7-8: channels are strengthened by what a map holds and what a site says.

    Args:
        width: c, channels of the map.
        indicator: ξ, e numbers that describe the site; see :mod:`instrument_nets.indicators`. It is a constant: neither
            trained nor part of the state dict.
        prompt_only: use F' = F* + W ξ instead, our reading of the paper's ablation "prompt without channel selection",
            which it does not define.

    Attributes:
        gate: gives ξ̂ (B, c), each in (0, 1): how much each channel is strengthened; None with ``prompt_only``.

    Raises:
        ValueError: ξ is not one row of finite numbers.
    """

    indicator: Tensor

    def __init__(self, width: int, indicator: Sequence[float] | Tensor, prompt_only: bool = False) -> None:
        super().__init__()
        vector = torch.as_tensor(indicator, dtype=torch.float32).detach().clone()
        if vector.ndim != 1 or vector.numel() < 1 or not bool(torch.isfinite(vector).all()):
            raise ValueError(f"indicator has shape {tuple(vector.shape)}; give one row of finite numbers")
        self.register_buffer("indicator", vector, persistent=False)
        inputs = vector.numel() if prompt_only else width + vector.numel()
        self.linear = nn.Linear(inputs, width, bias=not prompt_only)
        self.gate = None if prompt_only else nn.Sigmoid()  # a module, so that its output can be watched

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C, h, w)."""
        if self.gate is None:
            return maps + self.linear(self.indicator)[:, None, None]
        said = self.indicator.to(maps.dtype).expand(maps.shape[0], -1)
        gates = self.gate(self.linear(torch.cat([maps.mean(dim=(2, 3)), said], dim=1)))  # Eq. 7
        return maps + maps * gates[:, :, None, None]  # Eq. 8
