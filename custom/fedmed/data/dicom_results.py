"""DICOM for inference and its results: the series of a folder, and segmentations as DICOM SEG."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedmed.data.prepare.dicom_folder import checked_series, likeness
from fedmed.data.prepare.dicom_headers import SAME_PLACE, not_ct, read_header
from fedmed.data.prepare.dicom_slices import Slice, depths
from fedmed.data.prepare.folder import readable_kind
from fedmed.data.structure import Code, Structure, titles
from fedmed.errors import DataError
from fedmed.optional import needs

with needs("dicom", "DICOM files"):
    import highdicom as hd
    from pydicom import Dataset
    from pydicom.sr.codedict import codes

OF_NIFTI = "of NIfTI files the bundle's own inference makes masks, as its docs/README.md shows"
NEIGHBOURS = 100  # folders beside the given one that are looked into for the rest of a series
NEEDED = ("SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID", "FrameOfReferenceUID")
MAY_BE_EMPTY = (  # the standard requires them in every image, but de-identified exports often lack them
    *("PatientID", "PatientName", "PatientBirthDate", "PatientSex", "ReferringPhysicianName"),
    *("AccessionNumber", "StudyID", "StudyDate", "StudyTime"),
)
SERIES_OFFSET = 1000  # the segmentation of series 3 is series 1003, after all of the scanner's own
GRID_TOLERANCE = 0.01  # mm between a slice and its mask


class Series(NamedTuple):
    """A volume to choose: how it is called, its files, why it may lack a slice, the header of its first file."""

    name: str
    files: tuple[Path, ...]
    fault: str
    head: Dataset


def find_series(folder: Path, name: str | None = None) -> tuple[Path, ...]:
    """Return the files of the CT series of a folder (not of its subfolders), in the order of their slices.

    Other files, screenshots and series of other modalities are ignored.

    Args:
        folder: where the slices are.
        name: the SeriesInstanceUID of one of several series; of several volumes with one UID ``UID:1``, ``UID:2``, … as
            the error lists them.

    Raises:
        DataError: no such folder, no series, no CT series, several to choose from, not the one asked for, one that may
            have lost a slice, or one that goes on in a folder beside this one.
    """
    folder = Path(folder)
    if folder.is_file():
        raise DataError(f"{folder} is a file; give the folder that holds the slices; {OF_NIFTI}")
    try:
        if not any(folder.iterdir()):
            raise DataError(f"{folder} is empty; give the folder that holds the slices")
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be read ({error.strerror}); correct the path") from error
    series = checked_series(folder)
    if not series:
        there = f"the folder of the slices, not one above it{_below(folder)}"
        raise DataError(f"{folder} holds no DICOM series; give {there}; {OF_NIFTI}")
    if len(series) == 1 and (fault := series[0][1]):
        raise DataError(f"{folder}: {fault}")
    chosen = _chosen(folder, _named(folder, series), name)
    if chosen.fault:
        raise DataError(f"{folder}: {chosen.fault}")
    if rest := _rest(folder, chosen):
        raise DataError(f"{folder}: the series goes on in {rest}; put all its slices into one folder")
    return chosen.files


def _below(folder: Path) -> str:
    """The first folder below that holds DICOM files, to be named in an error; empty where there is none."""
    for here, _, names in islice(os.walk(folder), NEIGHBOURS):
        if Path(here) != folder and any(readable_kind(Path(here) / name) == "DICOM" for name in sorted(names)[:3]):
            return f", such as {here}"
    return ""


def _named(folder: Path, checked: Sequence[tuple[tuple[Path, ...], str]]) -> list[Series]:
    """The CT series among those that were found, each with a name of its own."""
    heads = [read_header(files[0]) for files, _ in checked]
    series = [(*pair, head) for pair, head in zip(checked, heads, strict=True) if not not_ct(head)]
    if not series:
        raise DataError(f"{folder}: {not_ct(heads[0])}; give the folder of a CT series")
    uids = [str(head.get("SeriesInstanceUID") or "") for *_, head in series]
    several, seen = Counter(uids), Counter[str]()
    named = []
    for uid, (files, fault, head) in zip(uids, series, strict=True):
        seen[uid] += 1
        named.append(Series(f"{uid}:{seen[uid]}" if several[uid] > 1 else uid, files, fault, head))
    return named


def _chosen(folder: Path, series: Sequence[Series], name: str | None) -> Series:
    """The only series, or the one of that name."""
    chosen = [one for one in series if name in (None, one.name, one.head.get("SeriesInstanceUID"))]
    if len(chosen) == 1:
        return chosen[0]
    if chosen and len({one.head.get("SeriesInstanceUID") for one in chosen}) == 1:
        if fault := next((one.fault for one in chosen if one.fault), ""):
            raise DataError(f"{folder}: {fault}")
        what = f"{len(chosen)} volumes under one UID"
    else:
        what = f"{len(series)} CT series" if name is None else f"no CT series {name}"
    listed = "; ".join(_described(one) for one in chosen or series)
    raise DataError(f"{folder} holds {what}; choose by --series UID: {listed}")


def _described(series: Series) -> str:
    head, count = series.head, len(series.files)
    size = f"{count} slices of {head.get('Columns')}×{head.get('Rows')}, {head.get('SliceThickness') or '?'} mm"
    return f"{series.name} ({head.get('SeriesDescription') or 'no description'}, {size})"


def _rest(folder: Path, series: Series) -> Path | None:
    """A folder beside this one with slices of the same series at other places; copies of it lie at the same ones."""
    alike = likeness(series.files[0])
    others = [path for path in _first_slices(folder) if alike[0] and likeness(path) == alike]
    try:
        depths_here = depths([Slice(path, read_header(path)) for path in series.files]) if others else np.zeros(1)
        for path in others:
            depth = depths([Slice(each, read_header(each)) for each in (series.files[0], path)])[1]
            if np.abs(depths_here - depth).min() > SAME_PLACE:
                return path.parent
    except (AttributeError, TypeError, ValueError):  # no position: whoever reads the series says so
        return None
    return None


def _first_slices(folder: Path) -> Iterator[Path]:
    """The first DICOM file of each folder beside this one that can be read."""
    here = folder.resolve()
    places = (place for place in sorted(here.parent.iterdir()) if place.is_dir() and place != here)
    for place in islice(places, NEIGHBOURS):
        try:
            files = sorted(path for path in place.iterdir() if path.is_file() and not path.name.startswith("."))
        except OSError:  # not ours to read
            continue
        if first := next((path for path in files if readable_kind(path) == "DICOM"), None):
            yield first


@dataclass(frozen=True)
class Producer:
    """Bundle that drew a mask: name, version, and a digest that tells its weights from others."""

    name: str
    version: str
    weights: str


def source_slices(files: Sequence[Path]) -> list[Dataset]:
    """Return the headers of a CT series' slices, in order, with all that a segmentation copies from them.

    Raises:
        DataError: a single file, or a slice without the identifiers that a segmentation refers to.
    """
    if len(files) < 2:
        raise DataError(f"{files[0]} is a single file; a series of single-frame slices is needed, not Enhanced CT")
    slices = [read_header(path) for path in files]
    for path, head in zip(files, slices, strict=True):
        if missing := [name for name in NEEDED if not head.get(name)]:
            raise DataError(f"{path} has no {', '.join(missing)}; a segmentation refers to it. Export the series again")
        for name in MAY_BE_EMPTY:
            if name not in head:
                setattr(head, name, "")
        if head.PatientSex not in ("M", "F", "O"):
            head.PatientSex = ""  # the standard's word for unknown
    return slices


def segmentation(
    slices: Sequence[Dataset], mask: np.ndarray, affine: np.ndarray, structures: Sequence[Structure], producer: Producer
) -> hd.seg.Segmentation:
    """Return a mask as a binary DICOM segmentation, ready for ``save_as``, that refers to the slices it lies on.

    Args:
        slices: of one CT series, as ``source_slices`` gives them. Patient and study are theirs, as DICOM demands.
        mask: (X, Y, Z) of integers; ``k`` is segment ``structures[k - 1]``, 0 is background. All 0 is allowed: every
            slice is then written empty, because the standard has no segmentation without frames.
        affine: (4, 4) of the mask, to mm in RAS, as ``read_series`` gives it for the same files.
        structures: the segments: label, colour, codes.
        producer: the bundle that drew the mask.

    Raises:
        DataError: the mask does not lie on the series' grid, has further values, or highdicom refuses the slices.
    """
    _check_grid(slices, mask, affine)
    if mask.max() > len(structures):
        raise DataError(f"the mask holds the value {mask.max()}, but names only {titles(structures)}; export it again")
    first = slices[0]
    try:
        return hd.seg.Segmentation(
            source_images=list(slices),
            pixel_array=np.ascontiguousarray(mask.transpose(2, 1, 0)).astype(np.uint8),
            segmentation_type=hd.seg.SegmentationTypeValues.BINARY,
            segment_descriptions=[_segment(k, one, producer) for k, one in enumerate(structures, start=1)],
            omit_empty_frames=bool(mask.any()),
            series_instance_uid=hd.UID(),
            series_number=SERIES_OFFSET + int(first.get("SeriesNumber") or 0),
            series_description=f"{titles(structures)} ({producer.name} {producer.version})"[:64],
            sop_instance_uid=hd.UID(),
            instance_number=1,
            manufacturer="FedMed",
            manufacturer_model_name=producer.name[:64],
            software_versions=producer.version[:64],
            device_serial_number=producer.weights[:64],
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        uid = first.SeriesInstanceUID
        raise DataError(f"series {uid}: no segmentation can refer to these slices ({error})") from error


def _segment(number: int, structure: Structure, producer: Producer) -> hd.seg.SegmentDescription:
    category, kind = map(_concept, structure.codes)
    return hd.seg.SegmentDescription(
        segment_number=number,
        segment_label=structure.title,
        segmented_property_category=category,
        segmented_property_type=kind,
        algorithm_type=hd.seg.SegmentAlgorithmTypeValues.AUTOMATIC,
        algorithm_identification=hd.AlgorithmIdentificationSequence(
            name=producer.name, version=producer.version, family=codes.DCM.ArtificialIntelligence
        ),
        anatomic_regions=[_concept(structure.anatomy)] if structure.anatomy else None,
        display_color=hd.color.CIELabColor.from_rgb(*structure.rgb) if structure.rgb else None,
    )


def _concept(code: Code) -> hd.sr.CodedConcept:
    return hd.sr.CodedConcept(code.value, code.scheme, code.meaning)


def _check_grid(slices: Sequence[Dataset], mask: np.ndarray, affine: np.ndarray) -> None:
    """Each slice of the mask must lie where its DICOM file says; pydicom reads it, ITK made the affine."""
    shape = (slices[0].Columns, slices[0].Rows, len(slices))
    if mask.shape != shape:
        raise DataError(f"the mask has shape {mask.shape}, the series {shape}; infer the series itself")
    for z, head in enumerate(slices):
        along_x, along_y = np.reshape(head.ImageOrientationPatient, (2, 3)).astype(float)
        far = along_x * (shape[0] - 1) * head.PixelSpacing[1] + along_y * (shape[1] - 1) * head.PixelSpacing[0]
        position = np.asarray(head.ImagePositionPatient, dtype=float)
        for corner, expected in (((0, 0, z, 1), position), ((shape[0] - 1, shape[1] - 1, z, 1), position + far)):
            away = np.linalg.norm((affine @ corner)[:3] * (-1, -1, 1) - expected)
            if away > GRID_TOLERANCE:
                raise DataError(f"slice {z + 1} of the mask lies {away:.3g} mm away from {head.SOPInstanceUID}")
