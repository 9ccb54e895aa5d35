"""Find the X-ray images of a folder, and their labels and patients from a table or their names. No image is read."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from fedmed.data.prepare.case import Source
from fedmed.data.prepare.folder import (
    DICOM_ENDINGS,
    compile_pattern,
    existing,
    patient_in,
    readable_kind,
    visible_files,
)
from fedmed.data.prepare.xray_table import Row

PICTURES = (".png", ".jpg", ".jpeg", *DICOM_ENDINGS, ".bmp", ".tif", ".tiff", ".gif", ".webp")


def find_xrays(
    folder: Path,
    table: Mapping[str, Row] | None = None,
    patient_pattern: str | None = None,
    classes: Sequence[str] = (),
    skip: Collection[Path] = (),
) -> list[Source]:
    """Find PNG, JPEG and DICOM files at any depth of ``folder``, sorted by path.

    Args:
        folder: where the images are. Hidden files and folders are ignored.
        table: file → label, patient and view; files that it does not name are refused if their patient is unknown.
        patient_pattern: searched in the path relative to ``folder``, without extension; its first group, or else the
            full match, is the patient. It is used where the table names no patient. Without both, a DICOM file belongs
            to its PatientID and any other file counts as a separate patient.
        classes: the only classes that are allowed, if there are some; images of others are refused.
        skip: folders that are not entered.

    Raises:
        DataError: ``folder`` is not a folder or cannot be listed, or the pattern is not a regular expression.
    """
    folder = existing(folder, "the folder of images")
    pattern = compile_pattern(patient_pattern)
    sources = []
    for path in _images(folder, {Path(place).resolve() for place in skip}):
        name = path.relative_to(folder).as_posix()
        row = (table or {}).get(name)
        label = row.label if row else ""
        patient, fault = _patient(path, name, row, pattern, table is not None)
        said = patient != name
        fault = fault or (row.fault if row else "")
        if label and classes and label not in classes:
            fault = fault or f"its label '{label}' is not one of {', '.join(classes)}"
        view = row.view if row else ""
        sources.append(Source(name, (path,), patient, label=label, view=view, fault=fault, patient_said=said))
    return sources


def _patient(
    path: Path, name: str, row: Row | None, pattern: re.Pattern[str] | None, asked: bool
) -> tuple[str | None, str]:
    """Patient (None: the DICOM header may tell) and fault."""
    if row and row.patient:
        return row.patient, ""
    if pattern:
        patient = patient_in(pattern, name.rsplit(".", 1)[0])
        return patient, "" if patient else f"the patient pattern does not match '{name}'"
    if readable_kind(path) == "DICOM":
        return None, ""
    if asked and row is None:
        return "", "not in the table, so its patient is unknown"
    return name, ""


def _images(folder: Path, skip: Collection[Path]) -> Iterator[Path]:
    """Files that are images by their content or by their name, in the order of their paths."""
    found = sorted(path for _, files in visible_files(folder, skip) for path in files)
    return (path for path in found if path.suffix.lower() in PICTURES or readable_kind(path))
