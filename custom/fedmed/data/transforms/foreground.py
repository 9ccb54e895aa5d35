"""Remember where foreground and background are, so that crops can be drawn without reading the whole mask."""

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from monai.transforms import Transform
from torch import Tensor

FOREGROUND = "foreground_index"
BACKGROUND = "background_index"
RESOLUTION = 1 << 20  # of a place within a part


class ForegroundIndexd(Transform):
    """Add flat indices of foreground and background voxels, for ``RandCropByPosNegLabeld``.

    A full CT has ten million background voxels, whose indices, which MONAI's ``FgBgToIndicesd`` would keep, are larger
    than the image. At most ``limit`` indices of each class are kept: one from each of as many parts of equal length, so
    that the distribution of crops hardly changes. Where in its part an index lies is drawn, because a constant stride
    that shares factors with the volume's size would meet the same few slices again and again.

    Args:
        label: key of the mask, shape (1, X, Y, Z), foreground > 0.
        limit: largest number of indices of each class.

    Returns:
        The case with ``foreground_index`` and ``background_index``: int32, flat indices into (X, Y, Z).
    """

    def __init__(self, label: str = "label", limit: int = 65_536) -> None:
        if limit < 1:
            raise ValueError(f"limit is {limit}; at least one index is needed")
        self.label, self.limit = label, limit

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        mask = data[self.label][0] > 0
        mask = mask.as_tensor() if hasattr(mask, "as_tensor") else mask
        return {**data, FOREGROUND: self._indices(mask), BACKGROUND: self._indices(~mask)}

    def _indices(self, mask: Tensor) -> Tensor:
        indices = torch.nonzero(mask.flatten()).flatten()
        if len(indices) > self.limit:
            # Integers and a fixed seed: the same voxels on every machine.
            starts = torch.arange(self.limit + 1) * len(indices) // self.limit
            drawn = torch.randint(RESOLUTION, (self.limit,), generator=torch.Generator().manual_seed(0))
            indices = indices[starts[:-1] + starts.diff() * drawn // RESOLUTION]
        return indices.to(torch.int32)
