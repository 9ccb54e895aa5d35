"""The decoder: a feature pyramid whose levels are brought to one size and added."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn


class PyramidDecoder(nn.Module):
    """Panoptic FPN's segmentation branch (Kirillov et al., CVPR 2019, section 3), with GroupNorm.

    Each level, from the deepest up, is taken to ``pyramid`` channels and added to the one below it at twice the size.
    Each then passes convolutions that double its size until all have the size of the first level, where they are added.
    It has 1,755,904 parameters for levels of 32, 64, 160 and 256 channels.

    Args:
        dims: channels of each level, the largest map first.
        pyramid: channels of the pyramid.
        segmentation: channels of the sum.
        groups: of channels that GroupNorm takes together; it divides ``segmentation``.
        dropout: probability that a channel of the sum is left out in training.
    """

    def __init__(
        self, dims: Sequence[int], pyramid: int = 256, segmentation: int = 128, groups: int = 32, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.laterals = nn.ModuleList(nn.Conv2d(width, pyramid, 1) for width in dims)
        self.branches = nn.ModuleList(_branch(level, pyramid, segmentation, groups) for level in range(len(dims)))
        self.dropout = nn.Dropout2d(dropout)

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Maps (B, dims[i], h / 2^i, w / 2^i) -> (B, segmentation, h, w)."""
        total = above = None
        for level, lateral, branch in reversed(list(zip(levels, self.laterals, self.branches, strict=True))):
            merged = lateral(level)
            if above is not None:
                merged = merged + F.interpolate(above, scale_factor=2.0, mode="nearest")
            above, part = merged, branch(merged)
            total = part if total is None else total + part
        return self.dropout(total)


def _branch(level: int, pyramid: int, segmentation: int, groups: int) -> nn.Sequential:
    """Convolutions that bring a level to the size of the first: one for each doubling, at least one."""
    steps: list[nn.Module] = []
    for number in range(max(level, 1)):
        steps += [
            nn.Conv2d(segmentation if number else pyramid, segmentation, 3, padding=1, bias=False),
            nn.GroupNorm(groups, segmentation),
            nn.ReLU(inplace=True),
        ]
        if level > 0:
            steps.append(nn.Upsample(scale_factor=2.0, mode="bilinear", align_corners=False))
    return nn.Sequential(*steps)
