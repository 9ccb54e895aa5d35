"""Refuse images and masks that cannot be trained on."""

import logging
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from monai.transforms import Transform

from fedmed.data.geometry import axis_order, corner_distance, unit_fault
from fedmed.data.prepare.volume_faults import NORMALISED
from fedmed.errors import DataError

log = logging.getLogger(__name__)


class CheckCased(Transform):
    """Check a freshly loaded case; it comes right after loading, while shape and affine are the file's own.

    Args:
        image: key of the image, a MetaTensor (1, X, Y, Z).
        label: key of the mask; a case without it is checked as an image alone.
        tolerance: largest distance in mm between a corner of the image and the same corner of the mask. A mask on the
            image's grid whose axes are stored in another order or direction is moved onto it, voxel by voxel.

    Raises:
        DataError: an image that is not one volume, is empty, not in millimetres, normalised and not in HU, or holds
            NaN or infinity; a mask of another shape or position, or with values other than 0 and 1. Names the file and
            what to do.
    """

    def __init__(self, image: str = "image", label: str = "label", tolerance: float = 0.1) -> None:
        self.image, self.label, self.tolerance = image, label, tolerance

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        _check_image(case[self.image])
        if self.label in case:
            case[self.label] = _moved(case[self.image], case[self.label], self.tolerance)
            _check_mask(case[self.image], case[self.label], self.tolerance)
        return case


def _name(tensor: MetaTensor) -> str:
    return str(tensor.meta.get("filename_or_obj", "an image without a file name"))


def _check_image(image: MetaTensor) -> None:
    name, size = _name(image), tuple(image.shape[1:])
    if fault := unit_fault(image.meta):
        raise DataError(f"{name}: {fault}")
    if image.numel() == 0:
        raise DataError(f"{name}: the image is empty (shape {size}); remove it from the datalist")
    if len(size) != 3 or min(size) < 2:
        raise DataError(f"{name}: the image has shape {size}; a volume of at least two slices is needed")
    if image.shape[0] != 1:
        raise DataError(f"{name}: the file holds {image.shape[0]} volumes; save the one to use in a file of its own")
    if count := int((~torch.isfinite(image)).sum()):
        raise DataError(f"{name}: {count} voxels are NaN or infinite; export the image again, in Hounsfield units")
    low, high = float(image.min()), float(image.max())
    if low < high and max(abs(low), abs(high)) <= NORMALISED:
        raise DataError(f"{name}: values lie in {low:.3g}…{high:.3g}, which are not HU; export the image again in HU")
    affine = np.asarray(image.affine, dtype=np.float64)
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-6:
        raise DataError(f"{name}: the affine has no usable voxel spacing; export the image again with its geometry")


def _moved(image: MetaTensor, mask: MetaTensor, tolerance: float) -> MetaTensor:
    """The mask in the axis order of its image, where only that is different; else as it is."""
    own, affine = (np.asarray(each.affine, dtype=np.float64) for each in (mask, image))
    order = axis_order(own, tuple(mask.shape[1:]), affine, tuple(image.shape[1:]), tolerance)
    if order is None:
        return mask
    log.info("%s: the mask has its axes in another order than its image; moved onto it", _name(mask))
    axes, flips = ([axis + 1 for axis in which] for which in order)
    moved = MetaTensor(mask.as_tensor().permute(0, *axes).flip(flips)).copy_meta_from(mask)
    moved.affine = image.affine.clone()
    return moved


def _check_mask(image: MetaTensor, mask: MetaTensor, tolerance: float) -> None:
    name = _name(mask)
    if mask.shape != image.shape:
        raise DataError(
            f"{name}: the mask has shape {tuple(mask.shape)}, its image {_name(image)} has {tuple(image.shape)} "
            "(channel, x, y, z); draw or resample the mask on the grid of the image"
        )
    distance = corner_distance(np.asarray(image.affine), np.asarray(mask.affine), tuple(image.shape[1:]))
    if not distance <= tolerance:
        raise DataError(
            f"{name}: the mask lies up to {distance:.1f} mm away from its image {_name(image)} (their affines "
            "differ); resample the mask on the grid of the image"
        )
    plain = mask.as_tensor()
    wrong = plain[(plain != 0) & (plain != 1)]
    if wrong.numel():
        values = ", ".join(f"{value:g}" for value in torch.unique(wrong)[:5].tolist())
        raise DataError(f"{name}: the mask holds {values} besides 0 and 1; save it with 0 outside and 1 inside")
