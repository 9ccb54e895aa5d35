"""Stochastic contrast-limited adaptive histogram equalisation of X-rays (Dong and Voiculescu 2021)."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np
import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform, RandomizableTransform
from torch import Tensor

from fedmed.errors import DataError, FedMedError

# OpenCV's own threads do not help with images this small, and a forked loader process can hang in them.
cv2.setNumThreads(0)


class ClaheViewsd(RandomizableTransform, MapTransform):
    """Turn an image into several, each of them equalised or not, with its own strengths (Dong and Voiculescu 2021).

    The default ranges are ours. The transform belongs into the loader, where worker processes share the work, before
    geometric ones. OpenCV computes on 8 bits; an image that is not equalised stays exactly as it is. MONAI has no
    CLAHE, and that of kornia takes twelve times as long.

    Args:
        keys: of images (1, H, W), float in [0, 1].
        views: number of images that are made of one.
        prob: probability of equalising, for each view independently.
        clip_limit: OpenCV's contrast limit is drawn uniformly from this range.
        tiles: rows and columns of the grid, each an integer drawn from this range, both ends included.

    Returns:
        The case with (views, 1, H, W) float32 in [0, 1] under each key.

    Raises:
        FedMedError: an argument outside its range.
        DataError: an image of another shape.

    Example:
        >>> ClaheViewsd("image", views=2)({"image": torch.rand(1, 64, 64)})["image"].shape
        torch.Size([2, 1, 64, 64])
    """

    def __init__(
        self,
        keys: KeysCollection,
        views: int = 2,
        prob: float = 0.5,
        clip_limit: Sequence[float] = (1.0, 4.0),
        tiles: Sequence[int] = (4, 12),
    ) -> None:
        if views < 1 or not 0 <= prob <= 1:
            raise FedMedError(f"ClaheViewsd: views is {views} and prob is {prob}; use 1 or more and a number in [0, 1]")
        for name, pair, least in (("clip_limit", clip_limit, 0), ("tiles", tiles, 1)):
            if len(pair) != 2 or not least <= pair[0] <= pair[1]:
                raise FedMedError(f"ClaheViewsd: {name} is {list(pair)}; give lowest and highest, from {least}")
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob)
        self.views, self.clip_limit, self.tiles = views, tuple(clip_limit), tuple(tiles)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        for key in self.key_iterator(case):
            image = torch.as_tensor(case[key])
            if image.ndim != 3 or image.shape[0] != 1:
                raise DataError(f"ClaheViewsd: '{key}' has shape {tuple(image.shape)}; it must be (1, H, W)")
            case[key] = self._make(image)
        return case

    def _make(self, image: Tensor) -> Tensor:
        plain = np.asarray(image[0], dtype=np.float32)
        eight_bits = np.rint(plain.clip(0, 1) * 255).astype(np.uint8)
        made = np.empty((self.views, 1, *plain.shape), dtype=np.float32)
        for view in made[:, 0]:
            # All numbers are drawn whether they are used or not, so that prob does not change the other views' draws.
            apply, limit = self.R.rand() < self.prob, self.R.uniform(self.clip_limit[0], self.clip_limit[1])
            grid = self.R.randint(self.tiles[0], self.tiles[1] + 1, size=2).tolist()
            if apply:
                equalised = cv2.createCLAHE(clipLimit=limit, tileGridSize=tuple(grid)).apply(eight_bits)
                np.multiply(equalised, np.float32(1 / 255), out=view)
            else:
                view[:] = plain
        return torch.from_numpy(made)
