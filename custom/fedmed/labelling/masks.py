"""Masks from a labelling tool, of volumes and of frames."""

import gzip
from pathlib import Path

import nibabel as nib
import numpy as np
from numpy.typing import NDArray

from fedmed.data.geometry import affine_notes, unit_fault, voxels_onto
from fedmed.data.image_size import UNREADABLE, opened_nifti, opened_picture, size_fault, volume
from fedmed.data.prepare.volume_faults import GRID_TOLERANCE, mask_faults
from fedmed.data.read_limits import file_bytes
from fedmed.data.video.frame_masks import picture
from fedmed.errors import DataError, first_line

FLOAT_32 = 4  # bytes of a value
NIFTI, NRRD = (".nii", ".nii.gz"), (".nrrd", ".nhdr")
PNG, LARGEST = ".png", 255


def read_grid(image: Path) -> tuple[tuple[int, ...], np.ndarray]:
    """Return the shape (X, Y, Z) and affine (4, 4) of an image; its voxels are not read.

    Raises:
        DataError: not a 3D NIfTI file in millimetres, or one of two affines: a mask may have been drawn in either.
    """
    if not image.name.lower().endswith(NIFTI):
        raise DataError(f"the image {image.name} is not a NIfTI file; only masks of 3D NIfTI images are used")
    try:
        opened = opened_nifti(image)
    except UNREADABLE as error:
        raise DataError(f"the image {image.name} is unreadable ({first_line(error)})") from error
    if len(opened.shape) != 3:
        raise DataError(f"the image {image.name} has shape {opened.shape}; a 3D volume is needed")
    if fault := unit_fault(opened.header):
        raise DataError(f"the image {image.name}: {fault}")
    for note in affine_notes(opened.header):
        raise DataError(f"the image {image.name}: {note} here, and maybe not where it was drawn; save it with one")
    return tuple(int(n) for n in opened.shape), np.asarray(opened.affine, dtype=float)


def read_mask(path: Path, shape: tuple[int, ...], affine: np.ndarray) -> np.ndarray:
    """Return a mask on the grid of its image: uint8, 0 or 1, shape (X, Y, Z).

    Numbers of any type are taken when they are 0 and 1 only. A mask stored with other axes (flipped, permuted) or as a
    part of the image's grid, as 3D Slicer writes NRRD files, is put in its place, voxel by voxel; nothing is resampled.

    Args:
        path: NIfTI or NRRD file.
        shape, affine: of the image.

    Raises:
        DataError: unreadable, another grid, several layers, or values other than 0 and 1.
    """
    name = path.name.lower()
    if name.endswith(NIFTI):
        mask, mask_affine = read_nifti(path)
    elif name.endswith(NRRD):
        mask, mask_affine = _read_nrrd(path)
    else:
        raise DataError(f"'{path.suffix}' files are not read; save the mask as .nii.gz, .nii or .nrrd")
    if mask.ndim > 3 and set(mask.shape[3:]) == {1}:
        mask = mask.reshape(mask.shape[:3])
    faults = mask_faults(mask, mask_affine, shape, affine)
    if faults and mask.ndim == 3:
        mask, mask_affine = _place(mask, mask_affine, shape, affine)
        faults = mask_faults(mask, mask_affine, shape, affine)
    if faults:
        raise DataError("; ".join(faults))
    return mask.astype(np.uint8)


def mask_bytes(mask: np.ndarray, affine: np.ndarray) -> bytes:
    """Return the content of a .nii.gz file; equal masks give equal bytes."""
    image = nib.Nifti1Image(mask.astype(np.uint8), affine)
    image.header.set_xyzt_units("mm")
    image.set_sform(affine, code=1)
    image.set_qform(affine, code=1)
    return gzip.compress(image.to_bytes(), mtime=0)


def volume_ml(mask: np.ndarray, affine: np.ndarray) -> float:
    """Volume of the foreground in ml."""
    return float(np.count_nonzero(mask) * abs(np.linalg.det(affine[:3, :3])) / 1000)


def read_nifti(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        opened = opened_nifti(path)
        return np.asanyarray(opened.dataobj), np.asarray(opened.affine, dtype=float)
    except UNREADABLE as error:
        raise DataError(f"unreadable ({first_line(error)})") from error


def _read_nrrd(path: Path) -> tuple[np.ndarray, np.ndarray]:
    import itk  # takes seconds to load, and most masks are NIfTI

    from fedmed.data.prepare.dicom import ras_affine

    try:
        file_bytes(path)
        header = itk.ImageIOFactory.CreateImageIO(str(path), itk.CommonEnums.IOFileMode_ReadMode)
        if header is None:
            raise DataError("unreadable (not an NRRD file)")
        header.SetFileName(str(path))
        header.ReadImageInformation()
        if header.GetNumberOfComponents() != 1:  # 3D Slicer writes overlapping segments as layers
            raise DataError("it holds several overlapping segments; export the one to use as a labelmap")
        if header.GetNumberOfDimensions() != 3:
            raise DataError(f"{header.GetNumberOfDimensions()}D; a 3D mask is needed")
        if fault := size_fault(volume([header.GetDimensions(axis) for axis in range(3)], FLOAT_32)):
            raise DataError(f"it {fault}")
        image = itk.imread(str(path), itk.F)
    except RuntimeError as error:
        raise DataError(f"unreadable ({first_line(error)})") from error
    return itk.array_from_image(image).transpose(2, 1, 0), ras_affine(image)


def _place(
    mask: np.ndarray, mask_affine: np.ndarray, shape: tuple[int, ...], affine: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Put a mask whose voxels are voxels of the image's grid in its place; any other mask is returned as it is."""
    if mask.size != np.prod(shape) and not (mask != 0).any():
        return mask, mask_affine  # nothing tells a part of the grid from a mask of another scan
    whole = voxels_onto(mask_affine, affine, mask.shape, GRID_TOLERANCE)
    if whole is None:
        return mask, mask_affine
    inside = np.argwhere(mask != 0)
    places = nib.affines.apply_affine(whole, inside).astype(int)
    if len(places) and (places.min() < 0 or (places >= np.array(shape)).any()):
        raise DataError("foreground lies outside the image")
    placed = np.zeros(shape, mask.dtype)
    placed[tuple(places.T)] = mask[tuple(inside.T)]
    return placed, affine


def read_frame_mask(path: Path, image: Path) -> NDArray[np.uint8]:
    """Return a mask on the pixels of its picture: (H, W), a class a value, 0 is everything else.

    Args:
        path: PNG file of one channel; of a palette the places count, not the colours.
        image: the picture.

    Raises:
        DataError: another kind of file, unreadable, another size, colours, or values above 255.
    """
    if path.suffix.lower() != PNG:
        raise DataError(f"'{path.suffix}' files are not read for pictures; save the mask as {PNG}")
    values = picture(path)
    try:
        with opened_picture(image) as opened:
            size = (opened.height, opened.width)
    except OSError as error:
        raise DataError(f"the picture {image.name} cannot be read ({first_line(error)}); restore it") from error
    if values.ndim != 2 or values.shape != size:
        raise DataError(
            f"the mask has shape {values.shape}, its picture {size}; draw it on the picture, in one channel"
        )
    if values.dtype != bool and not 0 <= values.min() <= values.max() <= LARGEST:
        raise DataError(f"the mask has the value {values.max()}; a class is a number from 1 to {LARGEST}")
    return values.astype(np.uint8)
