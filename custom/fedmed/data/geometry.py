"""Where a volume lies in space."""

from itertools import product

import nibabel as nib
import numpy as np


def corner_distance(affine: np.ndarray, other: np.ndarray, shape: tuple[int, ...]) -> float:
    """Largest distance in mm between corresponding corners of two volumes of one ``shape`` (X, Y, Z); NaN if undefined.

    ``affine`` and ``other`` are (4, 4), voxel to mm.
    """
    corners = np.array([(*corner, 1) for corner in product(*((0, n - 1) for n in shape))], dtype=float)
    difference = np.asarray(affine, dtype=float) - np.asarray(other, dtype=float)
    return float(np.linalg.norm((corners @ difference.T)[:, :3], axis=1).max())


def nifti(array: np.ndarray, affine: np.ndarray) -> nib.Nifti1Image:
    """A volume (X, Y, Z) with its affine (4, 4) to mm as NIfTI, in the array's type."""
    image = nib.Nifti1Image(array, affine, dtype=array.dtype)
    image.header.set_xyzt_units("mm")
    image.set_qform(affine, code=1)
    image.set_sform(affine, code=1)
    return image
