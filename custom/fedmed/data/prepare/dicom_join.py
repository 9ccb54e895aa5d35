"""Join a DICOM series that lies in several folders, as media with few files a folder have it."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from fedmed.data.prepare.dicom_folder import likeness
from fedmed.data.prepare.dicom_headers import read_header
from fedmed.errors import DataError

Volume = tuple[str, tuple[Path, ...], bool, str]  # path without extension, files, is a DICOM series, fault


def join_series(volumes: Iterable[Volume]) -> list[Volume]:
    """Return the volumes with the parts of each series joined, in the order of their slices.

    Parts have one SeriesInstanceUID and orientation, lie in folders of their own, and none of their slices is at the
    place of another's: copies of a series are left as they are. A part with a fault gives it to the others.
    """
    volumes, parts = list(volumes), defaultdict(list)
    for number, (_, files, series, _) in enumerate(volumes):
        if series and files and (alike := likeness(files[0]))[0]:
            parts[alike].append(number)
    for numbers in parts.values():
        members = [volumes[number] for number in numbers]
        if 1 < len(members) == len({files[0].parent for _, files, _, _ in members}):
            joined = _joined(members)
            for number in numbers if joined else ():
                volumes[number] = ("", (), False, "")
            if joined:
                volumes[numbers[0]] = joined
    return [volume for volume in volumes if volume[1]]


def _joined(members: Sequence[Volume]) -> Volume | None:
    """One volume of several; None where they are no parts of one."""
    files = tuple(path for _, part, _, _ in members for path in part)
    try:
        depth = _depths(files)
    except (DataError, AttributeError, TypeError, ValueError):  # whoever reads the parts says so
        return None
    if len(np.unique(depth.round(2))) < len(files):
        return None
    common = PurePosixPath(os.path.commonpath([f"./{key}" for key, *_ in members])).as_posix()
    key = common if common != "." else members[0][1][0].parent.parent.name
    return key, tuple(files[n] for n in np.argsort(depth)), True, next((fault for *_, fault in members if fault), "")


def _depths(files: Sequence[Path]) -> np.ndarray:
    """How far along the axis of the slices each one lies, in mm."""
    heads = [read_header(path) for path in files]
    along = np.array(heads[0].ImageOrientationPatient, dtype=float).reshape(6)
    positions = np.array([head.ImagePositionPatient for head in heads], dtype=float).reshape(-1, 3)
    return positions @ np.cross(along[:3], along[3:])
