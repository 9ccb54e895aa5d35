"""Where a volume lies in space."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import nibabel as nib
import numpy as np

UNITS = {1: "metres", 3: "micrometres"}  # NIfTI's codes; 0 is unknown and 2 millimetres, which all readers assume
SPACE = 7  # the bits of a header's xyzt_units that tell the unit of space
APART = 1e-3  # mm between two affines that are meant to be one


def corner_distance(affine: np.ndarray, other: np.ndarray, shape: tuple[int, ...]) -> float:
    """Largest distance in mm between corresponding corners of two volumes of one ``shape`` (X, Y, Z); NaN if undefined.

    ``affine`` and ``other`` are (4, 4), voxel to mm.
    """
    corners = np.array([(*corner, 1) for corner in product(*((0, n - 1) for n in shape))], dtype=float)
    difference = np.asarray(affine, dtype=float) - np.asarray(other, dtype=float)
    return float(np.linalg.norm((corners @ difference.T)[:, :3], axis=1).max())


def to_ras(affine: np.ndarray) -> np.ndarray:
    """Turn an affine (4, 4) of ITK or DICOM, which count x to the left and y to the back, into NIfTI's; and back."""
    return np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine


def nifti(array: np.ndarray, affine: np.ndarray) -> nib.Nifti1Image:
    """A volume (X, Y, Z) with its affine (4, 4) to mm as NIfTI, in the array's type."""
    image = nib.Nifti1Image(array, affine, dtype=array.dtype)
    image.header.set_xyzt_units("mm")
    image.set_qform(affine, code=1)
    image.set_sform(affine, code=1)
    return image


def unit_fault(header: nib.Nifti1Header | Mapping[str, Any]) -> str:
    """Why the voxels of a NIfTI header (or MONAI's metadata of it) are no millimetres; "" where they are."""
    units = header.get("xyzt_units", 0)
    unit = UNITS.get(int(np.asarray(units)) & SPACE)
    return f"its header gives voxels in {unit}; save it in millimetres" if unit else ""


def affine_notes(header: nib.Nifti1Header) -> list[str]:
    """Say where a header has two affines: viewers take one or the other."""
    (sform, s_code), (qform, q_code) = header.get_sform(coded=True), header.get_qform(coded=True)
    if not s_code or not q_code:
        return []
    apart = corner_distance(sform, qform, tuple(header.get_data_shape()[:3]))
    return [f"its sform and qform are up to {apart:.3g} mm apart; the sform is used"] if not apart <= APART else []
