"""Colours of frames, drawn to those of the hospitals that a model was trained at, as a federation showed them to it."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform
from monai.utils import convert_to_dst_type
from torch import Tensor

from surgical_phase.errors import BundleInputError

DARK = 0.04  # a pixel whose brightest channel is below is of a black border, and stays as it is
FLOOR = 1 / 255  # of a channel before its logarithm
LEAST = 1e-3  # of a deviation
LMS = torch.tensor([[0.3811, 0.5783, 0.0402], [0.1967, 0.7244, 0.0782], [0.0241, 0.1288, 0.8444]], dtype=torch.float64)
TURN = torch.diag(torch.tensor([3.0, 6.0, 2.0], dtype=torch.float64).rsqrt()) @ torch.tensor(
    [[1, 1, 1], [1, 1, -2], [1, -1, 0]], dtype=torch.float64
)


class MatchColoursd(MapTransform):
    """Move l, alpha and beta of RGB images to the mean and deviation of others (Reinhard et al. 2001, Eq. 10 and 11).

    Args:
        keys: entries (3 * frames, H, W) from 0 to 1 to change.
        colours: mean and deviation of a hospital's own images, and of those wanted, (2, 2, 3) numbers; None = images
            stay as they are.

    Raises:
        BundleInputError: not so many numbers; when called, an image of another number of channels.
    """

    def __init__(
        self,
        keys: KeysCollection,
        colours: Sequence[Sequence[Sequence[float]]] | None,
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.colours = None if colours is None else torch.as_tensor(colours, dtype=torch.float32)
        if self.colours is not None and self.colours.shape != (2, 2, 3):
            raise BundleInputError("image_colours needs mean and deviation of three channels, own and wanted")

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        for key in self.key_iterator(case) if self.colours is not None else ():
            image = torch.as_tensor(case[key])
            if len(image) % 3:
                raise BundleInputError(f"image_colours is of RGB, and the image has {len(image)} channels")
            plain = image.as_tensor() if hasattr(image, "as_tensor") else image
            case[key] = convert_to_dst_type(_moved(plain.float(), self.colours), image)[0]
        return case


def _moved(image: Tensor, colours: Tensor) -> Tensor:
    frames = image.unflatten(0, (-1, 3))
    (mean, deviation), (wanted, wide) = colours.to(frames)[..., None, None]
    source = _turned(TURN, _turned(LMS, frames.clamp(0, 1)).clamp_min(FLOOR).log10())
    moved = (source - mean) * (wide / deviation.clamp_min(LEAST)) + wanted
    shown = _turned(torch.linalg.inv(LMS), 10 ** _turned(torch.linalg.inv(TURN), moved)).clamp(0, 1)
    return torch.where(frames.amax(dim=1, keepdim=True) <= DARK, frames, shown).view_as(image)


def _turned(by: Tensor, frames: Tensor) -> Tensor:
    return torch.einsum("ij,fjhw->fihw", by.to(frames), frames)
