"""Find the DICOM series of a folder, and the slices that they lost."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import itk

from fedmed.data.dicom_start import dicom_fault
from fedmed.data.prepare.dicom_headers import quiet, read_header
from fedmed.data.prepare.folder import DICOM_ENDINGS, file_kind
from fedmed.data.prepare.pool import read_apart
from fedmed.data.read_limits import require_regular_files
from fedmed.errors import DataError
from fedmed.optional import needs

with needs("dicom", "DICOM files"):
    from pydicom import dcmread
    from pydicom.uid import UID

Files = tuple[Path, ...]
START = 132  # bytes of a DICOM file up to its mark; a copy that broke off is often nothing but zeros


def series_in(folder: Path) -> list[Files]:
    """Return the files of each DICOM series of one folder (not of its subfolders), in the order of their slices.

    DataError for a file at which ITK gives up, or that it must not be given: it opens every file of the folder.
    """
    require_regular_files(folder)
    for path in sorted(folder.iterdir()):
        if path.is_file() and os.access(path, os.R_OK) and (fault := dicom_fault(path)):
            raise DataError(f"{path.name} {fault}")
    return read_apart(_series_in, folder)


def _series_in(folder: Path) -> list[Files]:
    itk.Object.SetGlobalWarningDisplay(False)  # it warns of a folder without series, which the caller reports
    names = itk.GDCMSeriesFileNames.New()
    names.SetUseSeriesDetails(True)  # two reconstructions under one series UID are two series
    try:
        names.SetDirectory(str(folder))
    except RuntimeError as error:
        raise DataError("ITK fails at one of its files; keep one series a folder, and export it again") from error
    return [tuple(Path(name) for name in names.GetFileNames(uid)) for uid in sorted(names.GetSeriesUIDs())]


def checked_series(folder: Path) -> list[tuple[Files, str]]:
    """The same, each with the reason why it may lack a slice; "" for none.

    ITK passes over a file that it cannot read, and the series would only be shorter. Where no slice of a folder can be
    read, its files stand as one series with that reason.
    """
    try:
        series = series_in(folder)
    except DataError as error:
        return [(tuple(sorted(path for path in folder.iterdir() if path.is_file())), str(error))]
    damaged = _damaged(folder, {path.name for files in series for path in files})
    if series or not damaged:
        alike = [likeness(files[0]) for files in series]
        return [(series[n], _lost(alike[n][0], damaged) or _split_off(n, series, alike)) for n in range(len(series))]
    files = tuple(damaged)
    return [(files, f"none of its {len(files)} slices can be read, the first is {files[0].name}; export them again")]


def _damaged(folder: Path, known: set[str]) -> dict[Path, str]:
    """Files that ITK passed over and that are slices, or may be → SeriesInstanceUID, "" where that cannot be read."""
    endings = {"", *DICOM_ENDINGS, *(Path(name).suffix.lower() for name in known)}
    damaged = {}
    for path in sorted(folder.iterdir()):
        if path.name not in known and not path.name.startswith(".") and path.is_file():
            uid = _uid_of_damaged(path, endings)
            if uid is not None:
                damaged[path] = uid
    return damaged


def _uid_of_damaged(path: Path, endings: set[str]) -> str | None:
    """SeriesInstanceUID of a slice, "" where it cannot be told, None for a file that is not a slice."""
    sliced = path.suffix.lower() in endings or path.suffix[1:].isdigit()  # files may be named by their UIDs
    try:
        with path.open("rb") as file:
            if not file.read(START).strip(b"\0"):
                return "" if sliced else None
        if file_kind(path) != "DICOM":
            return None
        with quiet():
            head = dcmread(path, stop_before_pixels=True, force=True)  # there may be no preamble
        kind = UID(head.get("SOPClassUID") or head.file_meta.get("MediaStorageSOPClassUID") or "")
        return str(head.get("SeriesInstanceUID") or "") if not kind or "Image" in kind.name else None  # or a report
    except Exception:  # noqa: BLE001 - a header that is cut short makes pydicom fail in many ways
        return "" if sliced else None


def _lost(uid: str, damaged: Mapping[Path, str]) -> str:
    for path, other in damaged.items():
        if not other:
            return (
                f"{path.name} cannot be read and may be one of its slices; export the series again, or remove it if not"
            )
        if other == uid:
            return f"{path.name} belongs to the series and is damaged; export the series again"
    return ""


def likeness(path: Path) -> tuple[str, ...]:
    """SeriesInstanceUID and orientation; a localiser of the same series has another orientation."""
    try:
        head = read_header(path)
    except DataError:  # whoever reads the series says so
        return ("",)
    return tuple(str(head.get(name) or "") for name in ("SeriesInstanceUID", "ImageOrientationPatient"))


def _split_off(number: int, series: Sequence[Files], alike: Sequence[tuple[str, ...]]) -> str:
    """A slice with another thickness than the rest is a series of its own to ITK, and the rest would lack it."""
    for other, files in enumerate(series):
        if other != number and len(files) == 1 and alike[number][0] and alike[other] == alike[number]:
            return f"{files[0].name} belongs to the series, but differs in size, thickness or sequence; export it again"
    return ""
