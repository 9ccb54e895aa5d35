"""Find the X-ray images of a folder, and their labels and patients from a table or their names. No image is read."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from fedmed.data.prepare.scan import compile_pattern, existing, unlisted
from fedmed.data.prepare.xray_case import XraySource
from fedmed.data.prepare.xray_inspect import file_kind
from fedmed.data.prepare.xray_table import Row
from fedmed.errors import DataError

PICTURES = (".png", ".jpg", ".jpeg", ".dcm", ".dicom", ".ima", ".bmp", ".tif", ".tiff", ".gif", ".webp")


def find_xrays(
    folder: Path,
    table: Mapping[str, Row] | None = None,
    patient_pattern: str | None = None,
    merged: Mapping[str, str] | None = None,
    classes: Sequence[str] | None = None,
    skip: Collection[Path] = (),
) -> tuple[list[XraySource], list[str]]:
    """Find PNG, JPEG and DICOM files at any depth of ``folder``.

    Args:
        folder: where the images are. Hidden files and folders are ignored.
        table: file → label and patient; files that it does not name are refused if their patient is unknown.
        patient_pattern: searched in the path relative to ``folder``, without extension; its first group, or else the
            full match, is the patient. It is used where the table names no patient. Without both, a DICOM file belongs
            to its PatientID and any other file counts as a separate patient.
        merged: label of the table → class.
        classes: the only classes that are allowed; images of others are refused.
        skip: folders that are not entered.

    Returns:
        The sources, sorted by path, and files of the table that do not exist.

    Raises:
        DataError: ``folder`` is not a folder or cannot be listed, or the pattern is not a regular expression.
    """
    folder = existing(folder, "the folder of images")
    pattern = compile_pattern(patient_pattern)
    sources = []
    for path in _files(folder, {Path(place).resolve() for place in skip}):
        name = path.relative_to(folder).as_posix()
        row = (table or {}).get(name)
        label = row.label if row else ""
        label = (merged or {}).get(label, label)
        patient, fault = _patient(path, name, row, pattern, table is not None)
        if label and classes and label not in classes:
            fault = fault or f"its label '{label}' is not one of {', '.join(classes)}"
        sources.append(XraySource(name, path, patient, label, fault))
    missing = sorted(set(table or ()) - {source.case for source in sources})
    return sources, missing


def _patient(
    path: Path, name: str, row: Row | None, pattern: re.Pattern[str] | None, asked: bool
) -> tuple[str | None, str]:
    """Patient (None: the DICOM header may tell) and fault."""
    if row and row.patient:
        return row.patient, ""
    if pattern:
        match = pattern.search(name.rsplit(".", 1)[0])
        if not match:
            return "", f"the patient pattern does not match '{name}'"
        return (match.group(1) if pattern.groups else match.group()), ""
    if _kind(path) == "DICOM":
        return None, ""
    if asked and row is None:
        return "", "not in the table, so its patient is unknown"
    return name, ""


def _files(folder: Path, skip: Collection[Path]) -> Iterator[Path]:
    """Files that are images by their content or by their name, in the order of their paths."""
    found = []
    for place, folders, names in os.walk(folder, onerror=unlisted):
        here = Path(place)
        folders[:] = [name for name in folders if not name.startswith(".") and here / name not in skip]
        found += [here / name for name in names if not name.startswith(".") and name != "DICOMDIR"]
    return (path for path in sorted(found) if path.suffix.lower() in PICTURES or _kind(path))


def _kind(path: Path) -> str | None:
    try:
        return file_kind(path)
    except OSError:
        return None  # if its name is that of an image, the inspection will report it


def require_some(sources: Sequence[XraySource], folder: Path, table: Path | None, missing: Sequence[str]) -> None:
    """Raise DataError when there is no image, or when the table is that of another folder."""
    if not sources:
        raise DataError(f"{folder}: no PNG, JPEG or DICOM file at any depth")
    if missing and all(source.fault for source in sources):
        raise DataError(
            f"{table}: none of its files is in {folder}, the first is '{missing[0]}'; paths must be relative to it"
        )
