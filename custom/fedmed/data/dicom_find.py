"""Find the CT series of a folder that the user means."""

from collections.abc import Sequence
from pathlib import Path

from pydicom import Dataset, dcmread
from pydicom.errors import InvalidDicomError

from fedmed.data.prepare.dicom import series_in
from fedmed.errors import DataError


def find_series(folder: Path, uid: str | None = None) -> tuple[Path, ...]:
    """Return the files of the CT series of a folder (not of its subfolders), in the order of their slices.

    Other files and series of other modalities are ignored; ``uid``, the SeriesInstanceUID, chooses one of several.

    Raises:
        DataError: no such folder, no series, no CT series, several to choose from, or not the one asked for.
    """
    folder = Path(folder)
    try:
        if not any(folder.iterdir()):
            raise DataError(f"{folder} is empty; give the folder that holds the slices")
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be read ({error.strerror}); correct the path") from error
    groups = [(files, dcmread(files[0], stop_before_pixels=True, force=True)) for files in series_in(folder)]
    if not groups:
        raise DataError(f"{folder} holds no DICOM series; give the folder of the slices, not one above it")
    series = [(files, head) for files, head in groups if head.get("Modality", "CT") == "CT"]
    if not series:
        raise DataError(f"{folder}: DICOM modality is {groups[0][1].Modality}, not CT; give the folder of a CT series")
    chosen = [(files, head) for files, head in series if uid in (None, head.get("SeriesInstanceUID"))]
    if uid and len(chosen) > 1:
        raise DataError(
            f"series {uid} in {folder} holds {len(chosen)} volumes (sizes or orientations); keep one of them"
        )
    if len(chosen) != 1:
        listed = "; ".join(_described(files, head) for files, head in series)
        found = f"no CT series {uid}" if uid else f"{len(series)} CT series"
        raise DataError(f"{folder} holds {found}; choose by --series UID: {listed}")
    files, head = chosen[0]
    _check_nothing_left_out(folder, head, {path.name for files, _ in groups for path in files})
    return files


def _check_nothing_left_out(folder: Path, head: Dataset, known: set[str]) -> None:
    """ITK skips a slice that it cannot read; a finding in it would be missed without notice."""
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name not in known:
            try:
                other = dcmread(path, stop_before_pixels=True, specific_tags=["SeriesInstanceUID"])
            except (InvalidDicomError, OSError, EOFError):
                continue  # not a DICOM file
            if other.get("SeriesInstanceUID") == head.get("SeriesInstanceUID"):
                raise DataError(f"{path} belongs to the series and is damaged; export the series again")


def _described(files: Sequence[Path], head: Dataset) -> str:
    return f"{head.get('SeriesInstanceUID')} ({head.get('SeriesDescription') or 'no description'}, {len(files)} slices)"
