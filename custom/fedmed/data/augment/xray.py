"""Augmentations of X-rays: two views of an image, local contrast, random ones of a strength."""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform, RandomizableTransform
from torch import Tensor

from fedmed.data.augment.patches import Augment
from fedmed.errors import DataError, FedMedError
from fedmed.optional import needs

with needs("xray", "these augmentations"):
    import cv2
    from kornia.augmentation.auto.operations import OperationBase
    from kornia.augmentation.auto.rand_augment import ops
    from kornia.augmentation.auto.rand_augment.rand_augment import default_policy
    from kornia.geometry.transform import get_affine_matrix2d, warp_affine

HIGHEST = 30  # magnitudes run from 0 to it


class XrayViews:
    """Random resized crop, horizontal flip, small rotation, and change of brightness and contrast.

    The views of Dong and Voiculescu (2021); the default ranges are ours. Crop, flip and rotation are one
    interpolation. Beyond the border the image is mirrored, so a constant image stays constant. Each image gets its own
    draws, from a generator of this object; kornia's own augmentations draw from torch's global generator.

    Args:
        image_size: (H, W) of a view, or one number for both.
        seed: of the draws. They are made on the CPU: the same on every device.
        scale: share of the image's area that a crop covers, drawn uniformly.
        ratio: width / height of a crop relative to the image's, drawn log-uniformly.
        flip: probability of a mirror image.
        degrees: rotation, uniform within ± this.
        brightness: added value, uniform within ± this.
        contrast: values are moved from their mean by a factor uniform in 1 ± this.

    Raises:
        FedMedError: an argument outside its range; when called, a batch of another shape.
    """

    def __init__(
        self,
        image_size: int | Sequence[int],
        seed: int = 0,
        scale: Sequence[float] = (0.5, 1.0),
        ratio: Sequence[float] = (0.8, 1.25),
        flip: float = 0.5,
        degrees: float = 10.0,
        brightness: float = 0.2,
        contrast: float = 0.3,
    ) -> None:
        sides = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
        wrong = {
            f"image_size is {image_size}; use pixels, such as 256": len(sides) != 2 or min(sides) < 1,
            f"scale is {list(scale)}; give lowest and highest in (0, 1]": not 0 < scale[0] <= scale[1] <= 1,
            f"ratio is {list(ratio)}; give lowest and highest above 0": not 0 < ratio[0] <= ratio[1],
            f"flip is {flip}; use a probability": not 0 <= flip <= 1,
            f"degrees is {degrees}; use 0 to 180": not 0 <= degrees <= 180,
            f"brightness is {brightness}; use 0 to 1": not 0 <= brightness <= 1,
            f"contrast is {contrast}; use 0 to 1": not 0 <= contrast <= 1,
        }
        for message, bad in wrong.items():
            if bad:
                raise FedMedError(f"XrayViews: {message}")
        self.size, self.scale, self.flip, self.degrees = (sides[0], sides[1]), tuple(scale), flip, degrees
        self.log_ratio = tuple(math.log(bound) for bound in ratio)
        self.brightness, self.contrast = brightness, contrast
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, batch: Tensor) -> Tensor:
        """Return one view of each image.

        Args:
            batch: (B, C, H, W) float in [0, 1]; not modified.

        Returns:
            (B, C, *image_size) in [0, 1].
        """
        if batch.ndim != 4:
            raise FedMedError(f"XrayViews: a batch has shape {tuple(batch.shape)}; give (B, C, H, W)")
        drawn = torch.rand(8, len(batch), generator=self.generator)
        matrices = self._matrices(drawn[:6], batch.shape[2:]).to(batch)
        views = warp_affine(batch, matrices, self.size, padding_mode="reflection", align_corners=True)
        shift, factor = ((2 * drawn[6:] - 1) * torch.tensor([[self.brightness], [self.contrast]])).to(batch)
        shift, factor = shift.view(-1, 1, 1, 1), 1 + factor.view(-1, 1, 1, 1)
        mean = views.mean(dim=(1, 2, 3), keepdim=True)
        return torch.addcmul(mean * (1 - factor) + shift, views, factor).clamp_(0, 1)

    def _matrices(self, drawn: Tensor, shape: Sequence[int]) -> Tensor:
        """Pixels (x, y) of the image to pixels of the view: (B, 2, 3)."""
        area, ratio, left, top, mirror, turn = drawn
        image, view = (torch.tensor([lengths[1], lengths[0]], dtype=torch.float32) for lengths in (shape, self.size))
        area = self.scale[0] + area * (self.scale[1] - self.scale[0])
        ratio = (self.log_ratio[0] + ratio * (self.log_ratio[1] - self.log_ratio[0])).exp()
        crop = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()], dim=1).clamp(max=1) * image
        centre = crop / 2 + torch.stack([left, top], dim=1) * (image - crop) - 0.5
        zoom = view / crop
        zoom[:, 0] *= torch.where(mirror < self.flip, -1.0, 1.0)
        return get_affine_matrix2d((view - 1) / 2 - centre, centre, zoom, (2 * turn - 1) * self.degrees)[:, :2]


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


class RandAugment(Augment):
    """Some of fifteen operations on each frame, one after the other, all of the same magnitude.

    Each frame draws its own operations, all different; kornia's own class draws them once a batch. What pseudo-labels
    are made of stays as it is. The operations draw from torch's global generator, which is seeded for them from a
    generator of this object and left as it was.

    Args:
        seed: of the draws, which are made on the CPU.
        operations: how many a frame.
        magnitude: above 0, below 30; of operations that go both ways the direction is drawn, factors of colour,
            contrast, brightness and sharpness go from 0.1 to 1.9.

    Raises:
        FedMedError: an argument outside its range; when called, a batch of another shape.
    """

    def __init__(self, seed: int = 0, operations: int = 2, magnitude: int = 10) -> None:
        self.changes: list[OperationBase] = [getattr(ops, name)(low, high) for ((name, low, high),) in default_policy]
        if not 1 <= operations <= len(self.changes):
            raise FedMedError(f"RandAugment: operations is {operations}; use 1 to {len(self.changes)}")
        if not 0 < magnitude < HIGHEST:
            raise FedMedError(f"RandAugment: magnitude is {magnitude}; use a number above 0, below {HIGHEST}")
        self.operations, self.magnitude = operations, magnitude
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def __call__(self, batch: Tensor) -> Tensor:
        """Return one view of each frame: (B, 3, H, W) float in [0, 1], as the batch."""
        if batch.ndim != 4 or batch.shape[1] != 3:
            raise FedMedError(f"RandAugment: a batch has shape {tuple(batch.shape)}; give (B, 3, H, W)")
        orders = [torch.randperm(len(self.changes), generator=self.generator)[: self.operations] for _ in batch]
        chosen = torch.stack(orders) if orders else torch.empty(0, self.operations)
        seed = int(torch.randint(2**31, (), generator=self.generator))
        views = batch.clone()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed GPUs too
            for turn in chosen.T:
                for place, change in enumerate(self.changes):
                    if len(rows := (turn == place).nonzero()[:, 0].to(batch.device)):
                        views[rows] = self._changed(change, views[rows])
        return views.clamp_(0, 1)

    def _changed(self, change: OperationBase, frames: Tensor) -> Tensor:
        magnitude = None
        if change.magnitude_range is not None:
            low, high = (float(bound) for bound in change.magnitude_range)
            magnitude = torch.full((len(frames),), low + self.magnitude / HIGHEST * (high - low))
        return change(frames, params=change.forward_parameters(frames.shape, mag=magnitude))
