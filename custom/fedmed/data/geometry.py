"""Position of a volume in space."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import nibabel as nib
import numpy as np

UNITS = {1: "metres", 3: "micrometres"}  # NIfTI's codes; 0 is unknown and 2 millimetres, which all readers assume
SPACE = 7  # the bits of a header's xyzt_units that tell the unit of space
APART = 1e-3  # mm between two affines that are meant to be one
SIGNED_PERMUTATION = 1e-3  # largest deviation of an axis' direction from another axis, in voxels


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


def voxels_onto(
    mask_affine: np.ndarray, affine: np.ndarray, shape: tuple[int, ...], tolerance: float
) -> np.ndarray | None:
    """The matrix (4, 4) of whole numbers from voxels of a mask to those of its image; None where they do not meet.

    Args:
        mask_affine, affine: (4, 4) of the mask and of the image, voxel to mm.
        shape: of the mask, (X, Y, Z).
        tolerance: mm that a corner of the mask may lie away from a voxel of the image's grid.
    """
    if not all(np.isfinite(a).all() and abs(np.linalg.det(a[:3, :3])) > 1e-9 for a in (mask_affine, affine)):
        return None
    exact = np.linalg.inv(affine) @ mask_affine
    turn = np.rint(exact[:3, :3])
    permutation = all((np.abs(turn).sum(axis) == 1).all() for axis in (0, 1))
    if not permutation or np.abs(exact[:3, :3] - turn).max() > SIGNED_PERMUTATION:
        return None
    whole = nib.affines.from_matvec(turn, np.rint(exact[:3, 3]))
    return whole if corner_distance(mask_affine, affine @ whole, shape) <= tolerance else None


def axis_order(
    mask_affine: np.ndarray, mask_shape: tuple[int, ...], affine: np.ndarray, shape: tuple[int, ...], tolerance: float
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Order of axes of a mask that is stored on its image's own grid in another one, as dcm2niix and others do.

    Args:
        mask_affine, mask_shape, affine, shape, tolerance: of the mask and of the image, as in :func:`voxels_onto`.

    Returns:
        The axes for ``transpose``, and then those to flip, which bring the mask onto the image without loss; None
        where it lies on another grid, or already on this one.
    """
    if len(mask_shape) != 3 or (whole := voxels_onto(mask_affine, affine, mask_shape, tolerance)) is None:
        return None
    axes = np.abs(whole[:3, :3]).argmax(axis=1)
    reversed_ = whole[np.arange(3), axes] < 0
    start = np.where(reversed_, np.array(shape) - 1, 0)
    if tuple(mask_shape[axis] for axis in axes) != tuple(shape) or not np.array_equal(whole[:3, 3], start):
        return None
    flips = np.flatnonzero(reversed_)
    if not flips.size and axes.tolist() == [0, 1, 2]:
        return None
    return tuple(axes.tolist()), tuple(flips.tolist())


def nifti(array: np.ndarray, affine: np.ndarray, like: nib.Nifti1Header | None = None) -> nib.Nifti1Image:
    """A volume (X, Y, Z) with its affine (4, 4) to mm as NIfTI, in the array's type.

    ``like`` is the header of the image that a mask belongs to: a second affine of it, which some viewers take, stays.
    """
    image = nib.Nifti1Image(array, affine, dtype=array.dtype)
    image.header.set_xyzt_units("mm")
    image.set_sform(affine, code=1)
    second, code = like.get_qform(coded=True) if like is not None and affine_notes(like) else (affine, 1)
    image.set_qform(second, code=int(code))
    return image


def unit_fault(header: nib.Nifti1Header | Mapping[str, Any]) -> str:
    """Fault of a NIfTI header (or MONAI's metadata of it) whose voxels are not in millimetres; "" for others."""
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
