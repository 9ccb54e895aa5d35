"""Random changes of images.

Of patches, their geometry left alone (Yang et al. 2021, section 3.2, g), and of X-rays for contrastive learning
(FedMoCo, section 8).
"""

import importlib
from typing import Any

from fedmed.data.augment.base import Augment, Compose, weak_view
from fedmed.data.augment.build import build_augment
from fedmed.data.augment.cutout import Cutout
from fedmed.data.augment.intensity import FixMatch, GaussianNoise, ScaleShift

__all__ = [
    "Augment",
    "ClaheViewsd",
    "Compose",
    "Cutout",
    "FixMatch",
    "GaussianNoise",
    "ScaleShift",
    "XrayViews",
    "build_augment",
    "weak_view",
]

_LATE = {"ClaheViewsd": "clahe", "XrayViews": "xray"}  # OpenCV and kornia load when these are asked for, and only then


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
