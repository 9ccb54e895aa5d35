"""A folder of images and the place of what is prepared of it: what is read, left, and written where."""

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmed.data.dicom_start import is_dicom
from fedmed.data.read_limits import file_bytes
from fedmed.errors import DataError
from fedmed.files import close_tree

DICOM_ENDINGS = (".dcm", ".dicom", ".ima")
SIGNATURES = {b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG"}
VOLUMES = (".seg.nrrd", ".nrrd", ".nhdr", ".mha", ".mhd", ".nii.gz", ".nii", ".hdr", ".img", ".mgz", ".mgh", ".gipl")
LEFT = "Not read"  # heading of the report
PACKED = (".zip", ".tar.gz", ".tar", ".tgz", ".7z", ".rar", ".gz", ".bz2", ".xz")
LONG = (*VOLUMES, *PACKED)  # of two endings that fit the longer one stands first
DATALIST = "datalist.json"
REPORT = "prepare_report"
PREPARED = "prepared"  # images that were converted, linked or copied


def existing(folder: Path, what: str) -> Path:
    """The absolute path of a folder; ``what`` names it in the error when it does not exist."""
    folder = Path(folder).expanduser().resolve()
    if not folder.is_dir():
        raise DataError(f"{what}, {folder}, does not exist; correct the path or mount it")
    return folder


def visible_files(folder: Path, skip: Collection[Path]) -> Iterator[tuple[Path, list[Path]]]:
    """Yield each folder, in the order of their paths, with its files; hidden ones and those of ``skip`` are ignored.

    Links to folders are followed, each folder once. DataError for a folder that cannot be listed, a link without
    extension that leads nowhere, since the images behind it would be left out without notice, and a pipe or device,
    whose reading would never end.
    """

    def unlisted(error: OSError) -> None:
        raise DataError(f"the folder {error.filename} cannot be listed ({error.strerror}); allow it or move it away")

    seen: set[Path] = set()
    for place, folders, names in os.walk(folder, onerror=unlisted, followlinks=True):
        here, real = Path(place), Path(place).resolve()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if real in seen or real in skip:
            folders.clear()
            continue
        seen.add(real)
        files = [here / name for name in sorted(names) if not name.startswith(".") and name != "DICOMDIR"]
        for path in files:
            if path.is_symlink() and not path.suffix and not path.exists():
                raise DataError(f"the link {path} leads nowhere; mount what it leads to, or remove it")
            if path.exists():
                file_bytes(path)
        yield here, files


def compile_pattern(pattern: str | None) -> re.Pattern[str] | None:
    """The patient pattern as a regular expression; DataError if it is not one."""
    try:
        return re.compile(pattern) if pattern else None
    except re.error as error:
        raise DataError(f"--patient-pattern '{pattern}' is not a regular expression ({error})") from error


def patient_in(pattern: re.Pattern[str], text: str, name: str) -> tuple[str, str]:
    """The first group of the match, or else the full match, and "" or the fault of ``name`` without a match."""
    match = pattern.search(text)
    patient = (match.group(1) if pattern.groups else match.group()) if match else ""
    return patient, "" if patient else f"the patient pattern does not match '{name}'"


def file_kind(path: Path) -> str | None:
    """PNG, JPEG or DICOM by the first bytes (DICOM that begins in an odd way: by the extension), or None."""
    with path.open("rb") as file:
        head = file.read(132)
    known = next((kind for mark, kind in SIGNATURES.items() if head.startswith(mark)), None)
    if known is None and (is_dicom(head) or path.suffix.lower() in DICOM_ENDINGS):
        known = "DICOM"
    return known


def readable_kind(path: Path) -> str | None:
    """The same; None for a file that cannot be read, which the inspection reports if its name is that of an image."""
    try:
        return file_kind(path)
    except OSError:
        return None


def files_left(
    folders: Iterable[Path], read: Collection[Path], skip: Collection[Path] = (), tables: str = ""
) -> list[str]:
    """One line for each kind of file that is below ``folders`` and not read: number, ending, the first of them, remedy.

    Args:
        folders: what was searched.
        read: files that are read, and folders all of whose files are.
        skip: folders that are not entered.
        tables: what to do so that a CSV is read, where none was.
    """
    read, skip = set(read), {Path(place).resolve() for place in skip}
    kinds: dict[str, set[Path]] = defaultdict(set)
    for folder in folders:
        for path in _files(Path(folder), read, skip):
            kinds[_kind(path)].add(path)
    lines = {kind: _line(kind, sorted(paths)) for kind, paths in sorted(kinds.items())}
    return [f"{line}: {tables}" if kind == ".csv" and tables else line for kind, line in lines.items()]


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


@contextmanager
def staging_for(out: Path) -> Iterator[Path]:
    """Give a new folder next to ``out`` that is removed at the end, whatever happens.

    DataError if ``out`` is a file, holds a datalist that no preparation wrote, or cannot be written.
    """
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file; --out names a folder")
    if (out / DATALIST).exists() and not (out / f"{REPORT}.csv").exists():
        raise DataError(f"{out / DATALIST} was not written by a preparation; choose another --out or move it away")
    staging = out.parent / f".{out.name}.preparing-{os.getpid()}"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700)  # what is in it may come from elsewhere with other modes, and is closed at the end
    except OSError as error:
        raise DataError(f"cannot write into {out.parent} ({error}); choose another --out") from error
    try:
        yield staging
    except OSError as error:
        raise DataError(f"writing {out} failed ({error}); free some space or choose another --out") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def publish(staging: Path, out: Path) -> None:
    """Turn ``staging`` into ``out``. In a folder that exists, only what a preparation writes is replaced.

    A site YAML that a person has changed is kept next to the new one, with ``.before`` after its name. New files may be
    read by its owner only, or by the group too: see :func:`fedmed.files.private_files`.
    """
    close_tree(staging)
    if not out.exists():
        staging.rename(out)
        return
    old = staging.with_name(staging.name + "-old")
    shutil.rmtree(old, ignore_errors=True)
    if (out / PREPARED).exists() and (out / f"{REPORT}.csv").exists():
        (out / PREPARED).rename(old)
    for path in sorted(staging.iterdir()):
        target = out / path.name
        if path.suffix == ".yaml" and target.exists() and target.read_bytes() != path.read_bytes():
            os.replace(target, target.with_name(target.name + ".before"))
        os.replace(path, target)
    shutil.rmtree(old, ignore_errors=True)


def link_or_copy(path: Path, target: Path) -> Path:
    """Bring a file into a site folder, as a hard link if possible; return ``target``."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, target)
    except OSError:  # another disk, or a file system without links
        shutil.copy2(path, target)
    return target
