"""Do the headers of DICOM slices describe one volume in Hounsfield units? No pixel is read."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fedmed.data.dicom_start import dicom_fault
from fedmed.data.prepare.dicom_slices import Slice, slices_of
from fedmed.data.prepare.xray_view import CHEST
from fedmed.errors import DataError, first_line
from fedmed.optional import needs

with needs("dicom", "DICOM files"):
    from pydicom import Dataset, dcmread
    from pydicom.uid import UID

SCALE = {"RescaleIntercept": 1, "RescaleSlope": 1, "PixelSpacing": 2}  # numbers; without them ITK takes 0, 1, 1 mm
ONE = {  # what all slices of a volume have in common
    "Modality": "modalities",
    "SOPClassUID": "kinds of image",
    "PatientID": "patients",
    "StudyInstanceUID": "studies",
    "FrameOfReferenceUID": "frames of reference",
}
CT_IMAGES = {"1.2.840.10008.5.1.4.1.1.2", "1.2.840.10008.5.1.4.1.1.2.1", "1.2.840.10008.5.1.4.1.1.2.2"}
BY_TURNS = {  # what tells two acquisitions or reconstructions of one series from each other
    "AcquisitionNumber": "acquisitions",
    "TemporalPositionIdentifier": "points in time",
    "KVP": "tube voltages",
    "ConvolutionKernel": "reconstructions",
}
WITH_CHEST = ("CAP", "TAP", "BODY", "WHOLEBODY", "TRUNK")  # body parts of a scan that has the chest in it
GAP_TOLERANCE = 0.1  # of the usual slice distance; scanners round positions, a missing slice doubles the distance
SHEAR_TOLERANCE = 0.01  # sideways shift for each mm of depth; a tilted gantry shows 0.1 and more
SPACING_TOLERANCE = 1e-3  # of the pixel spacing; files round it
SAME_PLACE = 0.01  # mm
FIRST_NUMBERS = 5  # a series begins with 1, or after some localisers


@contextmanager
def quiet() -> Iterator[None]:
    """Silence pydicom, which warns of every unusual value of a header."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def read_header(path: Path) -> Dataset:
    """Everything but the pixels; DataError for a header that pydicom cannot read, or must not be given."""
    try:
        if fault := dicom_fault(path):
            raise DataError(f"{path.name} {fault}")
        with quiet():
            return dcmread(path, stop_before_pixels=True, force=True)
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged file makes pydicom fail in many ways
        raise DataError(f"{path.name} is damaged DICOM ({first_line(error)}); export the series again") from error


def not_ct(head: Dataset) -> str:
    """Reason to refuse a header as not that of a CT image; "" for one that is."""
    modality = head.get("Modality", "CT")
    if modality != "CT":
        return f"DICOM modality is {modality}, not CT"
    kind = UID(str(head.get("SOPClassUID") or ""))
    if (kind and kind not in CT_IMAGES) or int(head.get("SamplesPerPixel") or 1) > 1:
        return (
            f"not CT images, but {kind.name if kind not in CT_IMAGES else 'pictures in colour'} (such as a screenshot)"
        )
    return ""


def check_headers(files: Sequence[Path]) -> tuple[Dataset, list[Slice], list[str]]:
    """Return the header of the first of a series' files, which are in order, its slices, and what is odd.

    Raises:
        DataError: not CT; no rescale intercept or slope, or no pixel spacing; values other than HU; slices of two
            patients, studies, frames of reference or spacings; slices that are missing, doubled, sheared, of different
            orientation, or of two acquisitions by turns; or two files with one SOPInstanceUID.
    """
    with quiet():
        heads = [read_header(path) for path in files]
        try:
            if reason := not_ct(heads[0]):
                raise DataError(reason)
            slices = slices_of(heads, files)
            _check_common(slices)
            if len(slices) > 1:
                _check_positions(slices)
                _check_turns(slices)
            return heads[0], slices, [*_check_uids(heads, files), *_part_notes(slices), *_number_notes(heads)]
        except (AttributeError, TypeError, ValueError) as error:
            reason = first_line(error)
            raise DataError(f"a slice has an unreadable header ({reason}); export the series again") from error


def _check_common(slices: Sequence[Slice]) -> None:
    for name, what in ONE.items():
        values = [str(each.head.get(name) or "") for each in slices]
        if other := next((n for n, value in enumerate(values) if value != values[0]), 0):
            names = f"{slices[0].name}, {slices[other].name}"
            raise DataError(f"two {what} in one series ({name} of {names}); separate them")
    for each in slices:
        if missing := [name for name in SCALE if not _scales(name, each.head.get(name))]:
            raise DataError(
                f"{each.name} has no usable {', '.join(missing)}, so no known scale; export the series again"
            )
        # GDCM writes US, unspecified, when it changes how a CT is stored.
        if (unit := str(each.head.get("RescaleType") or "HU")) not in ("HU", "US"):
            raise DataError(f"the values are not HU: RescaleType of {each.name} is {unit}; export the series in HU")
    spacings = np.array([each.head.get("PixelSpacing", (1, 1)) for each in slices], dtype=float)
    uneven = np.abs(spacings - spacings[0]).max(axis=1) > SPACING_TOLERANCE * spacings[0].min()
    if uneven.any():
        names = f"{slices[0].name}, {slices[uneven.argmax()].name}"
        raise DataError(f"two pixel spacings in one series ({names}); separate them")


def _scales(name: str, value: object) -> bool:
    """True for finite numbers, and none of 0 where they multiply; ITK takes 1 for that too."""
    if value in (None, ""):
        return False
    numbers = np.array(value, dtype=float, ndmin=1)
    multiply = name != "RescaleIntercept"
    return bool(numbers.size == SCALE[name] and np.isfinite(numbers).all() and not (multiply and numbers.min() <= 0))


def _check_positions(slices: Sequence[Slice]) -> None:
    """A volume has one affine, so its slices must be parallel, equally spaced and not shifted sideways."""
    try:
        positions = np.array([each.position for each in slices])
        orientations = np.array([each.orientation for each in slices])
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError("a slice has no readable position or orientation (0020,0032 and 0020,0037)") from error
    if np.abs(orientations - orientations[0]).max() > 1e-3:
        raise DataError("the slices have different orientations; export each orientation as its own series")
    normal = np.cross(orientations[0, :3], orientations[0, 3:])
    depth = positions @ normal
    _check_distances(depth, [each.name for each in slices])
    if len(set(np.sign(np.diff(depth)))) > 1:
        raise DataError("the slices are not in order; give each series a folder of its own")
    sideways = positions[-1] - positions[0] - (depth[-1] - depth[0]) * normal
    if np.linalg.norm(sideways) > SHEAR_TOLERANCE * abs(depth[-1] - depth[0]):
        raise DataError("the slices are shifted sideways (tilted gantry); correct the tilt before preparing")


def _check_turns(slices: Sequence[Slice]) -> None:
    """Slices that stand in order: one that lies between others' may be of another phase, exactly half way."""
    for name, what in BY_TURNS.items():
        values = [str(each.head.get(name) or "") for each in slices]
        changes = [n for n in range(1, len(values)) if values[n] != values[n - 1]]
        if len(changes) >= len(set(values)):  # a value comes back; stations or slabs, one after the other, do not
            names = f"{slices[changes[0] - 1].name} and {slices[changes[0]].name}"
            raise DataError(f"two {what} by turns in one series ({name} of {names}); export each on its own")


def _check_distances(depth: np.ndarray, names: Sequence[str]) -> None:
    """Look at the slices by their depth in mm: ITK's order is another where two lie at one position."""
    order = np.argsort(depth, kind="stable")
    gaps = np.diff(depth[order])
    usual = float(np.median(gaps[gaps > SAME_PLACE])) if (gaps > SAME_PLACE).any() else np.inf
    twice = np.flatnonzero(gaps < GAP_TOLERANCE * usual)
    if twice.size:
        first, second = sorted(names[order[n]] for n in (twice[0], twice[0] + 1))
        more = f" (and {twice.size - 1} more)" if twice.size > 1 else ""
        twice_at = f"a slice position occurs twice: {first} and {second}{more}"
        raise DataError(f"{twice_at}; remove copies, or export each phase as a series")
    worst = int(np.abs(gaps - usual).argmax())
    if abs(gaps[worst] - usual) > GAP_TOLERANCE * usual:
        gap = f"{gaps[worst]:.3g} mm between {names[order[worst]]} and {names[order[worst + 1]]}"
        raise DataError(f"slices are missing or unequally spaced: {gap}, {usual:.3g} mm elsewhere")


def _part_notes(slices: Sequence[Slice]) -> list[str]:
    """Say which body part the headers name, where it is not the chest, nor more than it."""
    named = dict.fromkeys(filter(None, (_part_of(each.head) for each in slices)))
    other = [part for part in named if part not in WITH_CHEST and not any(word in part for word in CHEST)]
    return [f"the body part is {' and '.join(other)}, not the chest, as its header says"] if other else []


def _number_notes(heads: Sequence[Dataset]) -> list[str]:
    """Say so where the numbers of files begin late, as in a part of a series."""
    numbers = [int(head.get("InstanceNumber") or 0) for head in heads]
    if len(heads) == 1 or min(numbers) < FIRST_NUMBERS:
        return []
    return [f"its slices are numbered {min(numbers)} to {max(numbers)}: are those before in another folder?"]


def _part_of(head: Dataset) -> str:
    part = str(head.get("BodyPartExamined") or "")
    for code in head.get("AnatomicRegionSequence") or ():
        part = part or str(code.get("CodeMeaning") or "")
    return part.strip().upper()


def _check_uids(heads: Sequence[Dataset], files: Sequence[Path]) -> list[str]:
    first: dict[str, Path] = {}
    for head, path in zip(heads, files, strict=True):
        uid = str(head.get("SOPInstanceUID") or "")
        if uid and first.setdefault(uid, path) != path:
            raise DataError(f"{first[uid].name} and {path.name} share one SOPInstanceUID; export the series again")
    known = sum(bool(head.get("SOPInstanceUID")) for head in heads)
    return [] if known == len(heads) else ["slices without SOPInstanceUID, so no DICOM segmentation can refer to them"]
