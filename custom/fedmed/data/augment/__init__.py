"""Random changes of images.

Those imported here change patches without changing their geometry (g of Yang et al. 2021). Those of X-rays (Dong and
Voiculescu 2021) are in ``clahe`` and ``xray``; they are not imported here because they load OpenCV and kornia.
"""

from fedmed.data.augment.patches import (
    Augment,
    Compose,
    Cutout,
    FixMatch,
    GaussianNoise,
    ScaleShift,
    build_augment,
    weak_view,
)

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
