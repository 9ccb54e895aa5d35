"""Inspect CT volumes: convert them if they are DICOM, check them, measure them, and find the copies among them."""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import cast

import nibabel as nib
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import HeaderDataError

from fedmed.data.prepare.case import Case, Source, content_hash
from fedmed.data.prepare.pool import Track, run_all
from fedmed.data.prepare.volume_faults import LOWEST_PEAK, geometry_faults, mask_faults, value_faults, value_notes
from fedmed.errors import DataError, first_line

UNREADABLE = (OSError, EOFError, ValueError, zlib.error, ImageFileError, HeaderDataError)


def inspect_all(
    sources: Sequence[Source],
    converted: Path,
    workers: int = 1,
    lowest_peak: float = LOWEST_PEAK,
    track: Track | None = None,
) -> list[Case]:
    """Check and measure every volume and mark copies as faulty; bad data is no error, the cases list the faults.

    Args:
        sources: what was found.
        converted: folder for NIfTI files made from DICOM series.
        lowest_peak: HU that the brightest voxel of a usable volume exceeds.
        workers, track: see :func:`fedmed.data.prepare.pool.run_all`; so are the errors.
    """
    inspect = partial(_inspect, converted=converted, lowest_peak=lowest_peak)
    cases = run_all(inspect, sources, workers, track)
    _refuse_copies(cases)
    return cases


def _inspect(source: Source, converted: Path, lowest_peak: float) -> Case:
    found = source.files[0].parent if source.series else source.files[0]
    image = converted / f"{source.case}.nii.gz" if source.series else found
    case = Case(source.case, source.patient or source.case, found, image, source.mask)
    if source.fault:
        case.faults.append(source.fault)
        return case
    try:
        if source.series:
            _convert(source, case, image)
        _inspect_image(case, image, lowest_peak)
    except DataError as error:
        case.faults.append(str(error))
    except MemoryError:
        case.faults.append("does not fit into memory; prepare with fewer workers")
    if source.series and case.faults:
        image.unlink(missing_ok=True)
    return case


def _convert(source: Source, case: Case, target: Path) -> None:
    from fedmed.data.prepare.dicom import convert_series  # ITK takes seconds to load and NIfTI does not need it

    pseudonym = convert_series(source.files, target)
    if source.patient is None:
        case.patient = pseudonym or source.case
        if not pseudonym:
            case.notes.append("no PatientID; counted as a separate patient")


def _inspect_image(case: Case, path: Path, lowest_peak: float) -> None:
    with _readable(path, "image"):
        image = cast(nib.Nifti1Image, nib.load(path))
    case.shape = tuple(int(length) for length in image.shape)
    case.faults += geometry_faults(case.shape, image.affine, _stored_zooms(path, image))
    if case.faults:
        return
    case.spacing = tuple(round(float(size), 6) for size in np.linalg.norm(image.affine[:3, :3], axis=0))
    with _readable(path, "image"):
        values = np.asanyarray(image.dataobj)
    case.faults += value_faults(values, lowest_peak)
    if case.faults:
        return
    case.hu_min, case.hu_max = float(values.min()), float(values.max())
    case.hu_mean = round(float(values.mean(dtype=np.float64)), 3)
    case.notes += value_notes(values)
    case.content = content_hash(values)
    if case.mask:
        _inspect_mask(case, case.mask, image.affine)


def _inspect_mask(case: Case, path: Path, image_affine: np.ndarray) -> None:
    with _readable(path, "mask"):
        opened = cast(nib.Nifti1Image, nib.load(path))
        mask = np.asanyarray(opened.dataobj)
    case.faults += mask_faults(mask, opened.affine, case.shape, image_affine)
    if not case.faults:
        voxel_ml = abs(float(np.linalg.det(image_affine[:3, :3]))) / 1000
        case.mask_ml = round(np.count_nonzero(mask) * voxel_ml, 6)
        if not case.mask_ml:
            case.notes.append("the mask is empty")


@contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise DataError(f"{what} {path.name} is unreadable ({first_line(error)})") from error


def _stored_zooms(path: Path, image: nib.Nifti1Image) -> tuple[float, ...]:
    """Voxel sizes as they stand in the file; ``nib.load`` replaces a size of zero by 1 mm."""
    with nib.openers.ImageOpener(str(path)) as file:
        header = type(image.header).from_fileobj(file, check=False)
    return tuple(float(size) for size in header["pixdim"][1:4])


def _refuse_copies(cases: Sequence[Case]) -> None:
    """Mark every usable case with the same voxels as another one; of two, the one with a mask remains."""
    first: dict[str, str] = {}
    for case in sorted(cases, key=lambda case: (case.mask_ml is None, case.case)):
        if case.usable and first.setdefault(case.content, case.case) != case.case:
            case.faults.append(f"same voxels as case '{first[case.content]}'; one scan counts once")
            if case.image and case.image != case.found:  # converted
                case.image.unlink(missing_ok=True)
