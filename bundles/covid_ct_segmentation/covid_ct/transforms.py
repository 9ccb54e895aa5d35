"""Transforms of this bundle's inference."""

from collections.abc import Hashable, Mapping
from typing import Any

from monai.config import KeysCollection
from monai.transforms import MapTransform, Spacingd


class SafeSpacingd(Spacingd):
    """``Spacingd`` that leaves other entries of the case alone, and undoes itself in ``Invertd``.

    MONAI 1.6 updates every entry whose name begins with the key and an underscore as if it were a metadata
    dictionary; an application that adds ``image_path``, as MONAI Label does, fails on it.
    """

    def __call__(self, data: Mapping[Hashable, Any], lazy: bool | None = None) -> dict[Hashable, Any]:
        own = {key: data[key] for key in self.key_iterator(dict(data))}
        return {**data, **super().__call__(own, lazy)}


class ForegroundMaskd(MapTransform):
    """Turn two-channel probabilities (2, X, Y, Z) into a mask (1, X, Y, Z) of 0.0 and 1.0.

    Args:
        keys: entries to convert.
        threshold: probability of channel 1 above which a voxel is foreground; 0.5 equals argmax.
    """

    def __init__(self, keys: KeysCollection, threshold: float = 0.5, allow_missing_keys: bool = False) -> None:
        super().__init__(keys, allow_missing_keys)
        if not 0 <= threshold < 1:
            raise ValueError(f"threshold is {threshold}; a probability in [0, 1) is needed")
        self.threshold = threshold

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        for key in self.key_iterator(case):
            case[key] = (case[key][1:2] > self.threshold).float()
        return case
