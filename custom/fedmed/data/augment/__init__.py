"""Random changes of images.

Those imported here change patches without changing their geometry (g of Yang et al. 2021). Those of X-rays (Dong and
Voiculescu 2021) are in ``clahe`` and ``xray``; they are not imported here because they load OpenCV and kornia.
"""

from fedmed.data.augment.base import Augment, Compose, weak_view
from fedmed.data.augment.build import build_augment
from fedmed.data.augment.intensity import Cutout, FixMatch, GaussianNoise, ScaleShift

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
