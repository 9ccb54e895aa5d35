"""Frequencies of an image, stronger or weaker in bands, as a federation showed them to the model."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform
from monai.utils import convert_to_dst_type
from torch import Tensor
from torch.nn import functional

from covid_ct.errors import BundleInputError

MARGIN = 16  # by which an image is mirrored at its borders


class BandFactorsd(MapTransform):
    """Multiply amplitudes of an image by the factor of their frequency; phases stay.

    Args:
        keys: entries (C, ...) to change.
        factors: for each colour of frequency 0, then of equally wide bands up to half a wave a voxel; between the
            middles of bands they are interpolated. None = the image stays as it is.

    Raises:
        BundleInputError: no table of numbers; when called, one of another number of colours.
    """

    def __init__(
        self, keys: KeysCollection, factors: Sequence[Sequence[float]] | None, allow_missing_keys: bool = False
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.factors = None if factors is None else torch.as_tensor(factors, dtype=torch.float32)
        if self.factors is not None and (self.factors.ndim != 2 or self.factors.shape[1] < 2):
            raise BundleInputError("image_bands needs a list of at least two numbers for each colour")

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        for key in self.key_iterator(case) if self.factors is not None else ():
            image = torch.as_tensor(case[key])
            if len(image) != len(self.factors):
                raise BundleInputError(f"image_bands is of {len(self.factors)} colours, and the image has {len(image)}")
            plain = image.as_tensor() if hasattr(image, "as_tensor") else image
            case[key] = convert_to_dst_type(_with_factors(plain[None].float(), self.factors)[0], image)[0]
        return case


def _with_factors(images: Tensor, factors: Tensor) -> Tensor:
    axes, sides, bands = tuple(range(2, images.ndim)), images.shape[2:], factors.shape[1] - 1
    margins = [min(MARGIN, side - 1) for side in sides]
    padded = functional.pad(images, [m for margin in reversed(margins) for m in (margin, margin)], "reflect")
    spectra = torch.fft.rfftn(padded, dim=axes)
    place = _radius(padded.shape[2:]) * bands
    place = torch.where(place < 0.5, 2 * place, place + 0.5).clamp(max=bands)  # 0: frequency 0; k: middle of band k
    below = place.long().clamp(max=bands - 1)
    spectra *= torch.lerp(factors[:, below], factors[:, below + 1], place - below)
    changed = torch.fft.irfftn(spectra, s=padded.shape[2:], dim=axes)
    return changed[(..., *(slice(margin, margin + side) for margin, side in zip(margins, sides, strict=True)))]


def _radius(sides: Sequence[int]) -> Tensor:
    """Distance of each frequency of ``rfftn`` from 0, where half a wave a voxel is 1."""
    squares = torch.zeros(())
    for axis, side in enumerate(sides):
        frequencies = torch.fft.rfftfreq(side) if axis == len(sides) - 1 else torch.fft.fftfreq(side)
        squares = squares.unsqueeze(-1) + (2 * frequencies).square()
    return squares.sqrt()
