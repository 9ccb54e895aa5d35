"""Join a DICOM series that lies in several folders, as media with few files a folder have it."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

import numpy as np

from fedmed.data.prepare.case import Volume
from fedmed.data.prepare.dicom_folder import likeness
from fedmed.data.prepare.dicom_headers import read_header
from fedmed.data.prepare.dicom_slices import Slice, depths
from fedmed.errors import DataError


def join_series(volumes: Iterable[Volume]) -> list[Volume]:
    """Return the volumes with the parts of each series joined, in the order of their slices.

    Parts have one SeriesInstanceUID and orientation, lie in folders of their own, and none of their slices is at the
    place of another's: copies of a series are left as they are. A part with a fault gives it to the others.
    """
    volumes, parts = list(volumes), defaultdict(list)
    for volume in volumes:
        if volume.series and (alike := likeness(volume.files[0]))[0]:
            parts[alike].append(volume)
    joined: dict[Volume, Volume | None] = {}  # the first part becomes the whole, the others nothing
    for members in parts.values():
        if 1 < len(members) == len({part.files[0].parent for part in members}) and (whole := _joined(members)):
            joined |= {part: whole if part is members[0] else None for part in members}
    return [new for volume in volumes if (new := joined.get(volume, volume))]


def _joined(members: Sequence[Volume]) -> Volume | None:
    """One volume of several; None where they are no parts of one."""
    files = tuple(path for part in members for path in part.files)
    try:
        depth = depths([Slice(path, read_header(path)) for path in files])
    except (DataError, AttributeError, TypeError, ValueError):  # whoever reads the parts says so
        return None
    if len(np.unique(depth.round(2))) < len(files):
        return None
    common = PurePosixPath(os.path.commonpath([f"./{part.key}" for part in members])).as_posix()
    key = common if common != "." else members[0].files[0].parent.parent.name
    fault = next((part.fault for part in members if part.fault), "")
    return Volume(key, tuple(files[n] for n in np.argsort(depth)), True, fault)
