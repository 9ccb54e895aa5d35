"""Facts about a volume for a site's fingerprint."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import nibabel as nib
import numpy as np

from fedmed.data.fingerprint.facts import ImageFacts, Read, counted_values, levels, middle, thinned
from fedmed.data.image_size import UNREADABLE, opened_nifti
from fedmed.errors import DataError, first_line


def measure(files: Mapping[str, Path], classes: Sequence[str], read: Read | None) -> ImageFacts:
    """Look at a volume, and at its mask where it has one; axes count to the right, to the front and to the head.

    Args:
        files: ``image``, perhaps ``label``.
        classes, read: not needed.

    Raises:
        DataError: it cannot be read, or is not one volume.
    """
    try:
        image = opened_nifti(files["image"])
        if len(image.shape) != 3 or 0 in image.shape:
            raise DataError(f"{files['image']} is not one volume")
        order = nib.io_orientation(image.affine)
        if np.isnan(order).any():
            raise DataError(f"{files['image']} has axes without a direction")
        along = np.argsort(order[:, 0])
        spacing = np.linalg.norm(image.affine[:3, :3], axis=0)[along]
        values = nib.apply_orientation(thinned(np.asanyarray(image.dataobj)), order)
        mask = opened_nifti(files["label"]) if "label" in files else None
        counts = {} if mask is None else counted_values(np.asanyarray(mask.dataobj))
    except UNREADABLE as error:
        raise DataError(f"{files['image']} or its mask cannot be read ({first_line(error)})") from error
    three = levels(values)
    return ImageFacts(
        size=tuple(image.shape[axis] for axis in along),
        spacing=tuple(map(float, spacing)),
        intensity=three,
        centre=middle(values, three[0], three[2]) if three else (),
        orientation="".join(nib.aff2axcodes(image.affine)),
        values=counts,
    )
