"""Augmentation that hides parts of a patch."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedmed.data.augment.base import Augment
from fedmed.errors import FedMedError


class Cutout(Augment):
    """Cutout of the paper's Table 2: boxes of voxels of the resampled grid are set to 0, which is air.

    The boxes lie fully inside the patch, uniformly and independently of each other and of other patches; they may
    overlap. All channels of a patch are hidden at the same places. The pseudo-label is kept inside the boxes.

    Args:
        boxes: boxes in a patch; the paper's Cutout_1 has 1, its Cutout_2 has 5.
        size: voxels of a box along each spatial axis; the paper's 20 x 20 x 3 are 16 x 16 x 15 mm on its grid.
        seed: of the places. They are drawn on the CPU: the same on every device.

    Raises:
        FedMedError: no box, or a size below one voxel; when called, a patch with other axes, or smaller than a box.
    """

    def __init__(self, boxes: int = 1, size: Sequence[int] = (20, 20, 3), seed: int = 0) -> None:
        if boxes < 1:
            raise FedMedError(f"Cutout: boxes is {boxes}; use 1 or more")
        plain = isinstance(size, (list, tuple)) and len(size) > 0
        if not plain or any(not isinstance(voxels, int) or voxels < 1 for voxels in size):
            raise FedMedError(f"Cutout: size is {size!r}; give integers of at least 1 voxel, such as [20, 20, 3]")
        self.boxes, self.size = boxes, tuple(size)
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, batch: Tensor) -> Tensor:
        return batch.masked_fill(self._hidden(batch).unsqueeze(1), 0.0)

    def _hidden(self, batch: Tensor) -> Tensor:
        """Voxels of any box: bool, (B, X, Y, ...)."""
        lengths = batch.shape[2:]
        if len(lengths) != len(self.size) or any(n < box for n, box in zip(lengths, self.size, strict=True)):
            raise FedMedError(
                f"Cutout: a box of {list(self.size)} voxels does not fit into a patch of {list(lengths)}; change "
                "'cutout_size' or 'patch_size'"
            )
        inside = torch.ones((), dtype=torch.bool, device=batch.device)
        for axis, (length, box) in enumerate(zip(lengths, self.size, strict=True)):
            starts = torch.randint(length - box + 1, (len(batch), self.boxes, 1), generator=self.generator)
            starts = starts.to(batch.device)
            voxel = torch.arange(length, device=batch.device)
            along = (voxel >= starts) & (voxel < starts + box)  # (B, boxes, length)
            inside = inside & along.view(*along.shape[:2], *[-1 if i == axis else 1 for i in range(len(lengths))])
        return inside.any(dim=1)
