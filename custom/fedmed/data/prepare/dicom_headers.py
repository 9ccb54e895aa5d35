"""Do the headers of DICOM slices describe one volume in Hounsfield units? No pixel is read."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from pydicom import Dataset, dcmread

from fedmed.data.dicom_start import dicom_fault
from fedmed.errors import DataError, first_line

SCALE = {"RescaleIntercept": 1, "RescaleSlope": 1, "PixelSpacing": 2}  # numbers; without them ITK takes 0, 1, 1 mm
ONE = {  # what all slices of a volume have in common
    "Modality": "modalities",
    "PatientID": "patients",
    "StudyInstanceUID": "studies",
    "FrameOfReferenceUID": "frames of reference",
}
GAP_TOLERANCE = 0.1  # of the usual slice distance; scanners round positions, a missing slice doubles the distance
SHEAR_TOLERANCE = 0.01  # sideways shift for each mm of depth; a tilted gantry shows 0.1 and more
SPACING_TOLERANCE = 1e-3  # of the pixel spacing; files round it
SAME_PLACE = 0.01  # mm


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


def check_headers(files: Sequence[Path]) -> tuple[Dataset, list[str]]:
    """Return the header of the first of a series' files, which are in the order of their slices, and what is odd.

    Raises:
        DataError: not CT; no rescale intercept or slope, or no pixel spacing; slices of two patients, studies, frames
            of reference or spacings; slices that are missing, doubled, sheared or of different orientation; or two
            with one SOPInstanceUID.
    """
    with quiet():
        heads = [read_header(path) for path in files]
        try:
            _check_common(heads, files)
            if len(files) > 1:
                _check_positions(heads, files)
            return heads[0], _check_uids(heads, files)
        except (AttributeError, TypeError, ValueError) as error:
            raise DataError(
                f"a slice has an unreadable header ({first_line(error)}); export the series again"
            ) from error


def _check_common(heads: Sequence[Dataset], files: Sequence[Path]) -> None:
    modality = heads[0].get("Modality", "CT")
    if modality != "CT":
        raise DataError(f"DICOM modality is {modality}, not CT")
    for name, what in ONE.items():
        values = [str(head.get(name) or "") for head in heads]
        if other := next((n for n, value in enumerate(values) if value != values[0]), 0):
            raise DataError(f"two {what} in one series ({name} of {files[0].name}, {files[other].name}); separate them")
    for head, path in zip(heads, files, strict=True):
        if missing := [name for name in SCALE if not _holds(head, name)]:
            raise DataError(
                f"{path.name} has no usable {', '.join(missing)}, so its scale is unknown; export the series again"
            )
    spacings = np.array([head.get("PixelSpacing", (1, 1)) for head in heads], dtype=float)
    uneven = np.abs(spacings - spacings[0]).max(axis=1) > SPACING_TOLERANCE * spacings[0].min()
    if uneven.any():
        raise DataError(
            f"two pixel spacings in one series ({files[0].name} and {files[uneven.argmax()].name}); separate them"
        )


def _holds(head: Dataset, name: str) -> bool:
    """Whether a usable value is there; in a file of several frames it may stand in their functional groups."""
    given = [head.get(name)] if name in head or not head.get("NumberOfFrames") else []
    given = given or [element.value for element in head.iterall() if element.keyword == name]
    return any(_scales(name, value) for value in given)


def _scales(name: str, value: object) -> bool:
    """Whether finite numbers stand there, and none of 0 where they multiply; ITK takes 1 for that too."""
    if value in (None, ""):
        return False
    numbers = np.array(value, dtype=float, ndmin=1)
    multiply = name != "RescaleIntercept"
    return bool(numbers.size == SCALE[name] and np.isfinite(numbers).all() and not (multiply and numbers.min() <= 0))


def _check_positions(heads: Sequence[Dataset], files: Sequence[Path]) -> None:
    """A volume has one affine, so its slices must be parallel, equally spaced and not shifted sideways."""
    try:
        positions = np.array([head.ImagePositionPatient for head in heads], dtype=float).reshape(-1, 3)
        orientations = np.array([head.ImageOrientationPatient for head in heads], dtype=float).reshape(-1, 6)
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError("a slice has no readable position or orientation (0020,0032 and 0020,0037)") from error
    if np.abs(orientations - orientations[0]).max() > 1e-3:
        raise DataError("the slices have different orientations; export each orientation as its own series")
    normal = np.cross(orientations[0, :3], orientations[0, 3:])
    depth = positions @ normal
    _check_distances(depth, [path.name for path in files])
    if len(set(np.sign(np.diff(depth)))) > 1:
        raise DataError("the slices are not in order; give each series a folder of its own")
    sideways = positions[-1] - positions[0] - (depth[-1] - depth[0]) * normal
    if np.linalg.norm(sideways) > SHEAR_TOLERANCE * abs(depth[-1] - depth[0]):
        raise DataError("the slices are shifted sideways (tilted gantry); correct the tilt before preparing")


def _check_distances(depth: np.ndarray, names: Sequence[str]) -> None:
    """Look at the slices by their depth in mm: ITK's order is another where two lie at one position."""
    order = np.argsort(depth, kind="stable")
    gaps = np.diff(depth[order])
    usual = float(np.median(gaps[gaps > SAME_PLACE])) if (gaps > SAME_PLACE).any() else np.inf
    twice = np.flatnonzero(gaps < GAP_TOLERANCE * usual)
    if twice.size:
        first, second = sorted(names[order[n]] for n in (twice[0], twice[0] + 1))
        more = f" (and {twice.size - 1} more)" if twice.size > 1 else ""
        raise DataError(
            f"a slice position occurs twice: {first} and {second}{more}; remove copies, or export each phase as its "
            "own series"
        )
    worst = int(np.abs(gaps - usual).argmax())
    if abs(gaps[worst] - usual) > GAP_TOLERANCE * usual:
        raise DataError(
            f"slices are missing or unequally spaced: {gaps[worst]:.3g} mm between {names[order[worst]]} and "
            f"{names[order[worst + 1]]}, {usual:.3g} mm elsewhere"
        )


def _check_uids(heads: Sequence[Dataset], files: Sequence[Path]) -> list[str]:
    first: dict[str, Path] = {}
    for head, path in zip(heads, files, strict=True):
        uid = str(head.get("SOPInstanceUID") or "")
        if uid and first.setdefault(uid, path) != path:
            raise DataError(f"{first[uid].name} and {path.name} share one SOPInstanceUID; export the series again")
    known = sum(bool(head.get("SOPInstanceUID")) for head in heads)
    return [] if known == len(heads) else ["slices without SOPInstanceUID, so no DICOM segmentation can refer to them"]
