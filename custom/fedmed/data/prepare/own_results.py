"""Results of an earlier preparation, of inference or of MONAI Label below a folder of images: no scans of patients."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from fedmed.data.image_size import UNREADABLE, nifti_header
from fedmed.data.prepare.folder import visible_files
from fedmed.data.prepare.place import PREPARED, REPORT

# Name of a folder → the file that lies beside it, and what wrote both.
WRITTEN = {
    PREPARED: (f"{REPORT}.csv", "an earlier preparation"),
    **dict.fromkeys(("heat_maps", "overlays", "ribbons", "timelines"), ("predictions.csv", "an earlier inference")),
    "labels": ("datastore_v2.json", "MONAI Label"),
}


def own_folders(folder: Path, skip: Collection[Path] = ()) -> dict[Path, str]:
    """Folders of results below ``folder`` → what wrote them; ``folder`` itself is what a person asks for.

    Args:
        folder: searched at any depth.
        skip: folders that are not entered.

    Raises:
        DataError: a folder cannot be listed.
    """
    found = {}
    for here, _ in visible_files(folder, {Path(place).resolve() for place in skip}):
        mark, writer = WRITTEN.get(here.name, ("", ""))
        if mark and here != folder and (here.parent / mark).is_file():
            found[here] = writer
    return found


def own_masks(scans: Collection[Path]) -> list[Path]:
    """Of NIfTI files those of bytes whose names begin as another's, such as ``a_covid.nii.gz`` beside ``a.nii``.

    Inference writes its masks so; a CT, which has values below 0, is not stored so.
    """
    named = {path.parent / _stem(path) for path in scans}
    return [path for path in scans if any(path.parent / stem in named for stem in _starts(path)) and _of_bytes(path)]


def own_lines(folder: Path, folders: Mapping[Path, str], masks: Collection[Path] = ()) -> list[str]:
    """One line for each writer of results that are left out, with their number and the first place."""
    places = defaultdict(list)
    for place, writer in folders.items():
        places[writer].append(place)
    lines = []
    for writer, written in sorted(places.items()):
        files = sum(len(names) for place in written for _, names in visible_files(place, ()))
        shown = f"{written[0].relative_to(folder)}{', …' if len(written) > 1 else ''}"
        lines.append(f"{files} × of {writer} ({shown}): results, and no images of patients")
    if masks:
        first, *more = sorted(masks)
        shown = f"{first.name}{', …' if more else ''}"
        lines.append(f"{len(masks)} × masks called as a scan beside them ({shown}): as inference writes them; "
                     "--mask-suffix takes those that people drew")  # fmt: skip
    return lines


def _stem(path: Path) -> str:
    return path.name[: path.name.lower().rindex(".nii")]


def _starts(path: Path) -> list[str]:
    parts = _stem(path).split("_")
    return ["_".join(parts[:count]) for count in range(1, len(parts))]


def _of_bytes(path: Path) -> bool:
    try:
        return nifti_header(path).get_data_dtype() == np.uint8
    except UNREADABLE:
        return False  # its inspection says so
