"""Remember where foreground and background are, so that crops can be drawn without reading the whole mask."""

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from monai.transforms import Transform
from torch import Tensor

FOREGROUND = "foreground_index"
BACKGROUND = "background_index"


class ForegroundIndexd(Transform):
    """Add flat indices of foreground and background voxels, for ``RandCropByPosNegLabeld``.

    A full CT has ten million background voxels, whose indices, which MONAI's ``FgBgToIndicesd`` would keep, are larger
    than the image. At most ``limit`` indices of each class are kept, spread evenly over the volume, so that the
    distribution of crops hardly changes.

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
            # Exact integer arithmetic: the same voxels on every machine.
            indices = indices[torch.arange(self.limit) * len(indices) // self.limit]
        return indices.to(torch.int32)
