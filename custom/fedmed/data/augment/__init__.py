"""Changes of a batch of patches that leave its geometry alone (Yang et al. 2021, section 3.2, g)."""

from fedmed.data.augment.base import Augment, Compose, weak_view
from fedmed.data.augment.build import build_augment
from fedmed.data.augment.cutout import Cutout
from fedmed.data.augment.intensity import FixMatch, GaussianNoise, ScaleShift

__all__ = [
    "Augment",
    "Compose",
    "Cutout",
    "FixMatch",
    "GaussianNoise",
    "ScaleShift",
    "build_augment",
    "weak_view",
]
