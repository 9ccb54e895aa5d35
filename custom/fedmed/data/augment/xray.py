"""Random views of a batch of X-rays, two of which a model is to tell from others', computed where the batch lies."""

import math
from collections.abc import Sequence

import torch
from kornia.geometry.transform import get_affine_matrix2d, warp_affine
from torch import Tensor

from fedmed.errors import FedMedError


class XrayViews:
    """Random resized crop, horizontal flip, small rotation, and change of brightness and contrast.

    The views of Dong and Voiculescu (2021); the default ranges are ours. Crop, flip and rotation are one
    interpolation. Beyond the border the image is mirrored, so a constant image stays constant. Each
    image gets its own draws, from a generator of this object: the same seed gives the same views, and no other random
    numbers change. kornia's own augmentations draw from torch's global generator.

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
            f"brightness is {brightness} and contrast {contrast}; use 0 to 1": not (
                0 <= brightness <= 1 and 0 <= contrast <= 1
            ),
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
