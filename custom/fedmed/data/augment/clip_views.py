"""Random views of clips with one draw a clip, computed where the batch lies."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedmed.errors import FedMedError
from fedmed.optional import needs

with needs("xray", "views of clips"):
    from kornia.geometry.transform import get_affine_matrix2d, warp_affine

PLACES, COLOURS = 9, 4  # draws a clip
# Colours as brightness and two differences of colour (YIQ, NTSC 1953): a turn in the plane of the latter changes the
# hue, a factor on them the saturation, and grey stays grey.
TO_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])


class ClipViews:
    """Mirror images, crop, zoom, shift, rotation, and change of colour, the same for all frames of a clip.

    Kassem et al. (2023) shift, rotate and scale, Fang et al. (2025) rotate and scale; ranges are ours. All changes of
    place are one interpolation, and beyond the border the image is mirrored. Each clip gets its own draws, from a
    generator of this object. Where no place may change nothing is interpolated, where no colour nothing is mapped.

    Args:
        seed: of the draws. They are made on the CPU: the same on every device.
        flip, flip_vertical: probabilities of mirror images, left to right and upside down.
        crop: smallest share of the area that a crop keeps, drawn uniformly from it to 1; what is left fills the frame.
        zoom: factor of size, uniform within 1 ± this.
        shift: share of height and width, uniform within ± this.
        degrees: rotation, uniform within ± this.
        brightness: added value, uniform within ± this.
        contrast, saturation: factors on the distance from the clip's mean and from grey, uniform within 1 ± this.
        hue: turn of the hue in degrees, uniform within ± this.

    Raises:
        FedMedError: an argument outside its range; when called, a batch or masks of another shape.
    """

    def __init__(
        self,
        seed: int = 0,
        flip: float = 0.5,
        flip_vertical: float = 0.0,
        crop: float = 1.0,
        zoom: float = 0.1,
        shift: float = 0.1,
        degrees: float = 15.0,
        brightness: float = 0.1,
        contrast: float = 0.1,
        saturation: float = 0.1,
        hue: float = 5.0,
    ) -> None:
        shares = {"flip": flip, "flip_vertical": flip_vertical, "shift": shift, "brightness": brightness}
        shares |= {"contrast": contrast, "saturation": saturation}
        wrong = {f"{name} is {value}; use 0 to 1": not 0 <= value <= 1 for name, value in shares.items()}
        wrong[f"crop is {crop}; use a share of the area above 0, at most 1"] = not 0 < crop <= 1
        wrong[f"zoom is {zoom}; use 0 to 0.9"] = not 0 <= zoom <= 0.9
        wrong[f"degrees is {degrees} and hue {hue}; use 0 to 180"] = not (0 <= degrees <= 180 and 0 <= hue <= 180)
        for message, bad in wrong.items():
            if bad:
                raise FedMedError(f"ClipViews: {message}")
        self.flips, self.crop, self.zoom, self.shift, self.degrees = (flip, flip_vertical), crop, zoom, shift, degrees
        self.moves = any((flip, flip_vertical, crop < 1, zoom, shift, degrees))
        self.colour = torch.tensor([brightness, contrast, saturation, math.radians(hue)])
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, batch: Tensor, masks: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Return one view of each clip, and of its masks where they are given.

        Args:
            batch: (B, k, 3, H, W), uint8 or float in [0, 1]; not modified.
            masks: (B, n, H, W) classes of any number of its frames; moved like the frames, nearest class.

        Returns:
            (B, k, 3, H, W) float in [0, 1]; with masks, also these, of their own type.
        """
        if batch.ndim != 5 or batch.shape[2] != 3:
            raise FedMedError(f"ClipViews: a batch has shape {tuple(batch.shape)}; give (B, k, 3, H, W)")
        sizes = (len(batch), *batch.shape[3:])
        if masks is not None and (masks.ndim != 4 or (masks.shape[0], *masks.shape[2:]) != sizes):
            raise FedMedError(f"ClipViews: masks have shape {tuple(masks.shape)}; give (B, n, H, W) of the batch")
        drawn = torch.rand(PLACES + COLOURS, len(batch), generator=self.generator)
        matrices = self._matrices(drawn[:PLACES], batch.shape[3:]).to(batch.device)
        image = batch.float() / 255 if batch.dtype == torch.uint8 else batch
        views = self._recoloured(self._moved(image.flatten(1, 2), matrices, "bilinear").view_as(image), drawn[PLACES:])
        return views if masks is None else (views, self._moved(masks.float(), matrices, "nearest").to(masks.dtype))

    def _moved(self, planes: Tensor, matrices: Tensor, mode: str) -> Tensor:
        """Frames of a clip lie side by side as channels, so that one grid serves all of them."""
        if not self.moves:
            return planes
        sides = (planes.shape[2], planes.shape[3])
        return warp_affine(planes, matrices.to(planes), sides, mode, padding_mode="reflection", align_corners=True)

    def _matrices(self, drawn: Tensor, shape: Sequence[int]) -> Tensor:
        """Pixels (x, y) of a frame to pixels of its view: (B, 2, 3)."""
        mirror, upside, area, left, top, zoom, right, down, turn = drawn
        sides = torch.tensor([shape[1], shape[0]], dtype=torch.float32)
        keep = (self.crop + area * (1 - self.crop)).sqrt()[:, None]  # of each side
        place = (torch.stack([left, top], dim=1) - 0.5) * (1 - keep) * sides
        moved = (2 * torch.stack([right, down], dim=1) - 1) * self.shift * sides
        factor = (1 + (2 * zoom - 1) * self.zoom)[:, None] / keep * torch.ones(2)
        factor[:, 0] *= torch.where(mirror < self.flips[0], -1.0, 1.0)
        factor[:, 1] *= torch.where(upside < self.flips[1], -1.0, 1.0)
        centre = (sides - 1) / 2 + place
        return get_affine_matrix2d(moved - place, centre, factor, (2 * turn - 1) * self.degrees)[:, :2]

    def _recoloured(self, views: Tensor, drawn: Tensor) -> Tensor:
        """One linear map of colours a clip, (B, k, 3, H, W), cut off to [0, 1]."""
        if not self.colour.any():
            return views
        brightness, contrast, saturation, hue = (2 * drawn - 1) * self.colour[:, None]
        chroma, cosine, sine = 1 + saturation, torch.cos(hue), torch.sin(hue)
        turned = torch.zeros(len(views), 3, 3)
        turned[:, 0, 0] = 1
        turned[:, 1, 1] = turned[:, 2, 2] = chroma * cosine
        turned[:, 1, 2], turned[:, 2, 1] = -chroma * sine, chroma * sine
        matrix = (1 + contrast)[:, None, None] * (torch.linalg.inv(TO_YIQ) @ turned @ TO_YIQ)
        mean = views.mean(dim=(1, 2, 3, 4))
        offset = brightness.to(mean) - contrast.to(mean) * mean
        mixed = torch.einsum("bij,bkjhw->bkihw", matrix.to(views), views)
        return mixed.add_(offset.view(-1, 1, 1, 1, 1)).clamp_(0, 1)
