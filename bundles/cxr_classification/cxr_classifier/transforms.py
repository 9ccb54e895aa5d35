"""Transforms of this bundle, the same in training and in inference."""

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from monai.config import KeysCollection
from monai.data import MetaTensor
from monai.transforms import MapTransform
from torch import Tensor
from torch.nn import functional

from cxr_classifier.errors import BundleInputError
from cxr_classifier.readers import read_xray

# To be raised when the same file gives another image: a cache of prepared images identifies transforms by attributes.
VERSION = 1


class LoadXrayd(MapTransform):
    """Read a path as an image (1, H, W), float32 in [0, 1]: H rows, W columns, bone bright.

    The result is a MetaTensor with its file and size, and no facts about the patient.

    Raises:
        BundleInputError: see :func:`cxr_classifier.readers.read_xray`.
    """

    def __init__(self, keys: KeysCollection, allow_missing_keys: bool = False) -> None:
        super().__init__(keys, allow_missing_keys)
        self.version = VERSION

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        for key in self.key_iterator(case):
            image = torch.from_numpy(read_xray(case[key]))[None]
            meta = {"filename_or_obj": str(case[key]), "spatial_shape": list(image.shape[1:])}
            case[key] = MetaTensor(image, meta=meta)
        return case


class FitSquared(MapTransform):
    """Scale an image (1, H, W) so that its longer side is ``size``, and centre it on a black square (1, size, size).

    Nothing is distorted or cut off. Bilinear, with smoothing when it shrinks (torch's ``antialias``); MONAI's
    ``Resized`` with ``anti_aliasing`` applies a Gaussian to the full radiograph instead, which is many times slower.

    Args:
        keys: entries to resize.
        size: pixels.

    Raises:
        BundleInputError: a size below 8.
    """

    def __init__(self, keys: KeysCollection, size: int, allow_missing_keys: bool = False) -> None:
        super().__init__(keys, allow_missing_keys)
        if int(size) != size or size < 8:
            raise BundleInputError(f"image_size is {size}; an integer of at least 8 pixels is needed")
        self.size, self.version = int(size), VERSION

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        for key in self.key_iterator(case):
            image = case[key]
            plain = image.as_tensor() if isinstance(image, MetaTensor) else torch.as_tensor(image)
            fitted = fit_square(plain, self.size)
            case[key] = MetaTensor(fitted, meta=dict(image.meta)) if isinstance(image, MetaTensor) else fitted
        return case


def fit_square(image: Tensor, size: int) -> Tensor:
    """Fit an image (1, H, W) into (1, size, size); see :class:`FitSquared`."""
    rows, columns = image.shape[1:]
    scale = size / max(rows, columns)
    shape = [max(1, round(n * scale)) for n in (rows, columns)]
    scaled = functional.interpolate(image[None].float(), shape, mode="bilinear", antialias=True)[0].clamp(0, 1)
    top, left = ((size - n) // 2 for n in shape)
    return functional.pad(scaled, (left, size - shape[1] - left, top, size - shape[0] - top))
