"""Inspect one volume: convert it if it is DICOM, check it, measure it. Runs in worker processes."""

import hashlib
import zlib
from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import HeaderDataError

from fedmed.data.prepare.case import Case, Source
from fedmed.data.prepare.check import (
    LIMITS,
    Limits,
    geometry_faults,
    mask_faults,
    value_faults,
    value_notes,
    voxel_sizes,
)
from fedmed.errors import DataError, first_line

UNREADABLE = (OSError, EOFError, ValueError, zlib.error, ImageFileError, HeaderDataError)


def inspect(source: Source, converted: Path, limits: Limits = LIMITS) -> Case:
    """Check and measure one volume. Never raises for bad data: the returned case lists the faults.

    Args:
        source: what was found.
        converted: folder for NIfTI files made from DICOM series.
        limits: beyond them a volume is not plausible.
    """
    found = source.images[0].parent if source.dicom else source.images[0]
    case = Case(source.case, source.patient or source.case, found, mask=source.mask)
    if source.patient == "":
        case.faults.append(f"the patient pattern does not match '{source.key}'")
        return case
    try:
        case.image = _nifti(source, case, converted)
        _inspect_files(case, limits)
    except DataError as error:
        case.faults.append(str(error))
    except MemoryError:
        case.faults.append("does not fit into memory; prepare with fewer workers")
    if source.dicom and case.image and case.faults:
        case.image.unlink(missing_ok=True)
    return case


def _nifti(source: Source, case: Case, converted: Path) -> Path:
    if not source.dicom:
        return source.images[0]
    from fedmed.data.prepare.dicom import convert_series  # ITK takes seconds to load and NIfTI does not need it

    target = converted / f"{source.case}.nii.gz"
    pseudonym = convert_series(source.images, target)
    if source.patient is None:
        case.patient = pseudonym or source.case
        if not pseudonym:
            case.notes.append("no PatientID; counted as a separate patient")
    return target


def _inspect_files(case: Case, limits: Limits) -> None:
    image = _open(case.image, "image")
    zooms = _stored_zooms(image)
    case.shape = tuple(int(length) for length in image.shape)
    case.faults += geometry_faults(case.shape, image.affine, zooms)
    if case.faults:
        return
    case.spacing = tuple(round(float(size), 6) for size in voxel_sizes(image.affine))
    values = _voxels(image, "image")
    case.faults += value_faults(values, limits)
    if case.faults:
        return
    case.hu_min, case.hu_max = float(values.min()), float(values.max())
    case.hu_mean = round(float(values.mean(dtype=np.float64)), 3)
    case.notes += value_notes(values)
    case.content = content_hash(values)
    if case.mask:
        _inspect_mask(case, image.affine, limits)


def _inspect_mask(case: Case, image_affine: np.ndarray, limits: Limits) -> None:
    opened = _open(case.mask, "mask")
    mask = _voxels(opened, "mask")
    case.faults += mask_faults(mask, opened.affine, case.shape, image_affine, limits)
    if not case.faults:
        voxel_ml = abs(float(np.linalg.det(image_affine[:3, :3]))) / 1000
        case.mask_ml = round(np.count_nonzero(mask) * voxel_ml, 6)
        if not case.mask_ml:
            case.notes.append("the mask is empty")


def content_hash(values: np.ndarray) -> str:
    """SHA-256 of shape and values, independent of the type in which they are stored."""
    head = ",".join(map(str, values.shape)).encode()
    return hashlib.sha256(head + np.ascontiguousarray(values.T, dtype="<f4").tobytes()).hexdigest()


def _open(path: Path, what: str) -> nib.Nifti1Image:
    try:
        return nib.load(path)
    except UNREADABLE as error:
        raise DataError(f"{what} {path.name} is unreadable ({first_line(error)})") from error


def _stored_zooms(image: nib.Nifti1Image) -> tuple[float, ...]:
    """Voxel sizes as they stand in the file; ``nib.load`` replaces a size of zero by 1 mm."""
    with nib.openers.ImageOpener(image.get_filename()) as file:
        header = type(image.header).from_fileobj(file, check=False)
    return tuple(float(size) for size in header["pixdim"][1:4])


def _voxels(image: nib.Nifti1Image, what: str) -> np.ndarray:
    try:
        return np.asanyarray(image.dataobj)
    except UNREADABLE as error:
        raise DataError(f"{what} {Path(image.get_filename()).name} is unreadable ({first_line(error)})") from error
