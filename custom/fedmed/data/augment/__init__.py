"""Random changes of images.

Of patches, their geometry left alone (Yang et al. 2021, section 3.2, g). Those of X-rays for contrastive learning
(FedMoCo, section 8) are in ``clahe`` and ``xray``, and are not imported here: they load OpenCV and kornia.
"""

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
