"""Which files of a folder a preparation does not read: each kind with its number, so that none is missed in silence."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path

VOLUMES = (".seg.nrrd", ".nrrd", ".nhdr", ".mha", ".mhd", ".nii.gz", ".nii", ".hdr", ".img", ".mgz", ".mgh", ".gipl")
LEFT = "Not read"  # heading of the report
PACKED = (".zip", ".tar.gz", ".tar", ".tgz", ".7z", ".rar", ".gz", ".bz2", ".xz")
LONG = (*VOLUMES, *PACKED)  # of two endings that fit the longer one stands first


def files_left(folders: Iterable[Path], read: Collection[Path], skip: Collection[Path] = ()) -> list[str]:
    """One line for each kind of file that is below ``folders`` and not read: number, ending, the first of them, remedy.

    Args:
        folders: what was searched.
        read: files that are read, and folders all of whose files are.
        skip: folders that are not entered.
    """
    read, skip = set(read), {Path(place).resolve() for place in skip}
    kinds: dict[str, set[Path]] = defaultdict(set)
    for folder in folders:
        for path in _files(Path(folder), read, skip):
            kinds[_kind(path)].add(path)
    return [_line(kind, sorted(paths)) for kind, paths in sorted(kinds.items())]


def _files(folder: Path, read: Collection[Path], skip: Collection[Path]) -> Iterable[Path]:
    seen: set[Path] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        here, real = Path(place), Path(place).resolve()
        if real in seen or real in skip or here in read:
            folders.clear()
            continue
        seen.add(real)
        hidden = (here / name for name in folders if name.startswith("."))  # not entered, and one thing each
        yield from (path for path in hidden if path.resolve() not in skip)
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (here / name for name in names if here / name not in read and name != "DICOMDIR")


def _kind(path: Path) -> str:
    name = path.name.lower()
    if name.startswith("._"):
        return "._*"
    if name.startswith("."):
        return "hidden"
    return next((ending for ending in LONG if name.endswith(ending)), path.suffix.lower())


def _line(kind: str, paths: list[Path]) -> str:
    shown = f"{len(paths)} × {kind or 'without an ending'} ({paths[0].name}{', …' if len(paths) > 1 else ''})"
    if kind == "._*":
        return f"{shown}: macOS keeps its own notes in them, and no images"
    if kind == "hidden":
        return f"{shown}: a dot at the beginning hides files and folders; rename those that belong to the data"
    if kind in (".nii", ".nii.gz"):
        return f"{shown}: no option takes them as an image or a mask"
    if kind in VOLUMES:
        return f"{shown}: images and masks of this format are not read; save them as .nii.gz (3D Slicer does)"
    return f"{shown}: packed; unpack them if they belong to the data" if kind in PACKED else shown
