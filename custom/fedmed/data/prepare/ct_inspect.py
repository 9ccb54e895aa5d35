"""Inspect CT volumes: convert them if they are DICOM, check them, measure them, and find the copies among them."""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import nibabel as nib
import numpy as np

from fedmed.data.geometry import affine_notes, axis_order, nifti, unit_fault
from fedmed.data.image_size import UNREADABLE, opened_nifti
from fedmed.data.patients import folded
from fedmed.data.prepare.case import Case, Checked, Source, content_hash
from fedmed.data.prepare.pool import DIED, Track, run_all
from fedmed.data.prepare.report import Rows, listed
from fedmed.data.prepare.split import refuse_copies
from fedmed.data.prepare.volume_faults import (
    BINARY,
    GRID_TOLERANCE,
    LOWEST_PEAK,
    Foreground,
    geometry_faults,
    hinted,
    mask_faults,
    value_faults,
    value_notes,
)
from fedmed.errors import DataError, first_line

MOVED = "the mask's axes are in another order or direction than the image's; moved onto its grid, voxel by voxel"


def inspect_all(
    sources: Sequence[Source],
    converted: Path | None,
    workers: int = 1,
    lowest_peak: float = LOWEST_PEAK,
    track: Track | None = None,
    *,
    foreground: Foreground = BINARY,
    ending: str = ".nii.gz",
) -> list[Case]:
    """Check and measure every volume and mark copies as faulty; bad data is no error, the cases list the faults.

    Args:
        sources: what was found.
        converted: folder for what is written: ``images`` made from DICOM series, with this ``ending``, and ``masks``
            of 0 and 1 where ``foreground`` says which values count, or where they are moved onto their image. None
            where there is no series and nothing is to be written.
        lowest_peak: HU that the brightest voxel of a usable volume exceeds.
        workers, track: see :func:`fedmed.data.prepare.pool.run_all`; so are the errors.
    """
    inspect = partial(_inspect, converted=converted, lowest_peak=lowest_peak, foreground=foreground, ending=ending)
    series = any(source.series for source in sources)  # ITK's decoders, and GDCM's, may take any memory
    cases = run_all(inspect, sources, workers, track, apart=series, died=lambda one: inspect(replace(one, fault=DIED)))
    for _, *copies in refuse_copies(cases, "voxels", "scan"):
        for case in copies:
            _forget(case, converted)
    return cases


def _inspect(source: Source, converted: Path | None, lowest_peak: float, foreground: Foreground, ending: str) -> Case:
    place = source.files[0].parent if source.series else source.files[0]
    image = converted / "images" / f"{source.case}{ending}" if source.series and converted else place
    said = source.patient_said
    case = Case(source.case, source.patient or source.case, place, image, source.mask, patient_said=said)
    if source.fault:
        case.faults.append(source.fault)
        return case
    try:
        if source.series:
            _convert(source, case, image)
        opened = _inspect_image(case, image, lowest_peak)
        if case.mask and case.usable:
            case.mask = _inspect_mask(case, case.mask, opened, foreground, converted)
    except DataError as error:
        case.faults.append(str(error))
    except MemoryError:
        case.faults.append("does not fit into memory; prepare with fewer workers")
    if not case.usable:
        _forget(case, converted)
    return case


def _convert(source: Source, case: Case, target: Path) -> None:
    from fedmed.data.prepare.dicom import convert_series  # ITK takes seconds to load and NIfTI does not need it
    from fedmed.data.prepare.dicom_headers import read_header

    pseudonym, notes = convert_series(source.files, target)
    case.notes += notes
    if len({path.parent for path in source.files}) > 1:
        case.notes.append("one series of several folders, joined")
    if source.patient is None:
        case.patient, case.patient_said = pseudonym or source.case, bool(pseudonym)
        case.patient_key = folded(str(read_header(source.files[0]).get("PatientID") or ""))
        if not pseudonym:
            case.notes.append("no PatientID; counted as a separate patient")


def _inspect_image(case: Case, path: Path, lowest_peak: float) -> nib.Nifti1Image:
    """Fill in what the file shows, and return it as it was opened."""
    with _readable(path, "image"):
        image = opened_nifti(path)
        with nib.openers.ImageOpener(str(path)) as file:  # nib.load replaces a voxel size of zero by 1 mm
            header = type(image.header).from_fileobj(file, check=False)
    case.shape = tuple(int(length) for length in image.shape)
    if unit := unit_fault(header):
        case.faults.append(unit)
        return image
    placed = bool(header["sform_code"] or header["qform_code"])
    case.faults += geometry_faults(case.shape, image.affine, tuple(map(float, header["pixdim"][1:4])), placed)
    if case.faults:
        return image
    case.spacing = tuple(round(float(size), 6) for size in np.linalg.norm(image.affine[:3, :3], axis=0))
    with _readable(path, "image"):
        values = np.asanyarray(image.dataobj)
    case.faults += value_faults(values, lowest_peak)
    if not case.faults:
        case.hu_min, case.hu_max = float(values.min()), float(values.max())
        case.hu_mean = round(float(values.mean(dtype=np.float64)), 3)
        case.notes += [*value_notes(values), *affine_notes(header)]
        case.content = content_hash(values)
    return image


def _inspect_mask(
    case: Case, path: Path, image: nib.Nifti1Image, foreground: Foreground, converted: Path | None
) -> Path:
    """Measure a mask; return its file, a new one where only some values count or its axes were in another order."""
    with _readable(path, "mask"):
        opened = opened_nifti(path)
        stored = np.asanyarray(opened.dataobj)
    mask, notes = foreground.of(stored)
    case.notes += notes
    order = axis_order(opened.affine, mask.shape, image.affine, case.shape, GRID_TOLERANCE)
    if order:
        mask = np.flip(mask.transpose(order[0]), order[1])
        case.notes.append(MOVED)
    faults = mask_faults(mask, image.affine if order else opened.affine, case.shape, image.affine)
    case.faults += hinted(faults, stored)
    if case.faults:
        return path
    voxel_ml = abs(float(np.linalg.det(image.affine[:3, :3]))) / 1000
    case.mask_ml = round(np.count_nonzero(mask) * voxel_ml, 6)
    if not case.mask_ml:
        case.notes.append("the mask is empty")
    if converted is None or not (foreground.converts or order):
        return path
    target = converted / "masks" / f"{case.case}.nii.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nifti(mask, image.affine, image.header), target)
    return target


def list_table(cases: Sequence[Case]) -> Rows:
    """Rows (list, cases, patients, slice spacing, HU range, median mask volume), a heading first."""
    from fedmed.data.structure import three_digits  # loads pydantic, which no process that inspects needs

    rows: Rows = [("list", "cases", "patients", "slice spacing (mm)", "HU", "mask, median (ml)")]
    for name, members in listed(cases).items():
        patients = {case.patient for case in members}
        spacing = _range([slice_spacing(case) for case in members])
        values = _range([hu for case in members for hu in (case.hu_min, case.hu_max) if hu is not None])
        volumes = [case.mask_ml for case in members if case.mask_ml is not None and name != "unlabeled"]
        median = three_digits(statistics.median(volumes)) if volumes else "–"
        rows.append((name, str(len(members)), str(len(patients)), spacing, values, median))
    return rows


def slice_spacing(case: Case) -> float:
    """Distance of the slices in mm: spacing along the axis that is stored last."""
    return case.spacing[-1]


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.4g}", f"{max(values):.4g}"
    return low if low == high else f"{low} … {high}"


@contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise DataError(f"{what} {path.name} is unreadable ({first_line(error)})") from error


def _forget(case: Checked, converted: Path | None) -> None:
    """Remove what was written for a case that is refused."""
    for path in (case.image, case.mask):
        if path and converted and path.is_relative_to(converted):
            path.unlink(missing_ok=True)
