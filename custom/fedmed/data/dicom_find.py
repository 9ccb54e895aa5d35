"""Find the CT series of a folder that the user means."""

from collections.abc import Sequence
from pathlib import Path

from pydicom import Dataset

from fedmed.data.prepare.dicom_folder import checked_series
from fedmed.data.prepare.dicom_headers import read_header
from fedmed.errors import DataError


def find_series(folder: Path, uid: str | None = None) -> tuple[Path, ...]:
    """Return the files of the CT series of a folder (not of its subfolders), in the order of their slices.

    Other files and series of other modalities are ignored; ``uid``, the SeriesInstanceUID, chooses one of several.

    Raises:
        DataError: no such folder, no series, no CT series, several to choose from, not the one asked for, or one that
            may have lost a slice.
    """
    folder = Path(folder)
    try:
        if not any(folder.iterdir()):
            raise DataError(f"{folder} is empty; give the folder that holds the slices")
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be read ({error.strerror}); correct the path") from error
    found = checked_series(folder)
    if not found:
        raise DataError(f"{folder} holds no DICOM series; give the folder of the slices, not one above it")
    if len(found) == 1 and (fault := found[0][1]):
        raise DataError(f"{folder}: {fault}")
    groups = [(files, fault, read_header(files[0])) for files, fault in found]
    series = [group for group in groups if group[2].get("Modality", "CT") == "CT"]
    if not series:
        raise DataError(f"{folder}: DICOM modality is {groups[0][2].Modality}, not CT; give the folder of a CT series")
    chosen = [group for group in series if uid in (None, group[2].get("SeriesInstanceUID"))]
    one = len({head.get("SeriesInstanceUID") for _, _, head in chosen}) == 1
    if one and (fault := next((fault for _, fault, _ in chosen if fault), "")):
        raise DataError(f"{folder}: {fault}")
    if uid and len(chosen) > 1:
        raise DataError(
            f"series {uid} in {folder} holds {len(chosen)} volumes (sizes or orientations); keep one of them"
        )
    if len(chosen) != 1:
        listed = "; ".join(_described(files, head) for files, _, head in series)
        what = f"no CT series {uid}" if uid else f"{len(series)} CT series"
        raise DataError(f"{folder} holds {what}; choose by --series UID: {listed}")
    return chosen[0][0]


def _described(files: Sequence[Path], head: Dataset) -> str:
    return f"{head.get('SeriesInstanceUID')} ({head.get('SeriesDescription') or 'no description'}, {len(files)} slices)"
