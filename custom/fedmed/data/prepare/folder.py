"""Walk through a folder of images, tell kinds of files, and read patients from paths."""

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from fedmed.data.dicom_start import is_dicom
from fedmed.data.regular_file import file_bytes
from fedmed.errors import DataError

DICOM_ENDINGS = (".dcm", ".dicom", ".ima")
SIGNATURES = {b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG"}


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


def patient_in(pattern: re.Pattern[str], text: str) -> str:
    """The first group of the match, or else the full match; "" where the pattern does not match."""
    match = pattern.search(text)
    return (match.group(1) if pattern.groups else match.group()) if match else ""


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
