"""Find the CT series of a folder that the user means."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydicom import Dataset

from fedmed.data.prepare.dicom_folder import checked_series, likeness
from fedmed.data.prepare.dicom_headers import SAME_PLACE, not_ct, read_header
from fedmed.data.prepare.dicom_slices import Slice, depths
from fedmed.data.prepare.folder import readable_kind
from fedmed.errors import DataError

BESIDE = 100  # folders beside the given one that are looked into for the rest of a series


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
    chosen = _chosen(folder, _named(folder, found), name)
    if chosen.fault:
        raise DataError(f"{folder}: {chosen.fault}")
    if beside := _rest(folder, chosen):
        raise DataError(f"{folder}: the series goes on in {beside}; put all its slices into one folder")
    return chosen.files


def _named(folder: Path, found: Sequence[tuple[tuple[Path, ...], str]]) -> list[Series]:
    """The CT series among those that were found, each with a name of its own."""
    heads = [read_header(files[0]) for files, _ in found]
    series = [(*pair, head) for pair, head in zip(found, heads, strict=True) if not not_ct(head)]
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
        own = depths([Slice(path, read_header(path)) for path in series.files]) if others else np.zeros(1)
        for path in others:
            depth = depths([Slice(each, read_header(each)) for each in (series.files[0], path)])[1]
            if np.abs(own - depth).min() > SAME_PLACE:
                return path.parent
    except (AttributeError, TypeError, ValueError):  # no position: whoever reads the series says so
        return None
    return None


def _first_slices(folder: Path) -> Iterator[Path]:
    """The first DICOM file of each folder beside this one that can be read."""
    here = folder.resolve()
    for place in islice((place for place in sorted(here.parent.iterdir()) if place.is_dir() and place != here), BESIDE):
        try:
            files = sorted(path for path in place.iterdir() if path.is_file() and not path.name.startswith("."))
        except OSError:  # not ours to read
            continue
        if first := next((path for path in files if readable_kind(path) == "DICOM"), None):
            yield first
