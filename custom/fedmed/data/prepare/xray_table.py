"""The table of a folder of X-rays: which class, patient and view each file has."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedmed.data.tables import OF_IMAGES, csv_errors, table_lines
from fedmed.errors import DataError

COLUMNS = ("file", "label", "patient", "view")


@dataclass(frozen=True)
class Row:
    """What a table says of one file; without them ``label``, ``view`` and ``fault`` are "", and ``patient`` is None."""

    label: str
    patient: str | None
    view: str = ""
    fault: str = ""  # why its image cannot be used


def read_table(path: Path, columns: Mapping[str, str]) -> dict[str, Row]:
    """Read a CSV (comma, semicolon or tab) and return file → row; files are paths relative to the images' folder.

    Args:
        path: the table.
        columns: names that the user gave for some of ``COLUMNS``; the table must have them. The others are called so,
            and a table without label, patient or view says nothing about it.

    Raises:
        DataError: unreadable, too large, without rows or one of the columns, or two rows of one file that differ.
    """
    try:
        lines = table_lines(path, OF_IMAGES)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the table {path} cannot be read ({error}); save it as CSV in UTF-8") from error
    if len(lines) < 2:
        raise DataError(f"the table {path} has no rows below its heading")
    with csv_errors(path):
        return _rows(path, csv.DictReader(lines, delimiter=max(",;\t", key=lines[0].count)), columns)


def no_labels(path: Path, columns: Mapping[str, str], rows: Mapping[str, Row]) -> list[str]:
    """A line about a table of which no row has a label, with the columns that it has instead."""
    if any(row.label or row.fault for row in rows.values()):
        return []
    name, heading = columns.get("label", "label"), table_lines(path, OF_IMAGES)[0].strip()
    return [f"{path.name}: no row has a label in the column '{name}' (its heading: {heading}); see --label-column"]


def _rows(path: Path, reader: csv.DictReader, columns: Mapping[str, str]) -> dict[str, Row]:
    present = reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    for what, name in {"file": "file", **columns}.items():
        if name not in present:
            raise DataError(
                f"the table {path} has no column '{name}' (it has {', '.join(present)}); name it with --{what}-column"
            )
    rows: dict[str, Row] = {}
    for number, record in enumerate(reader, start=2):
        file, label, patient, view = ((record.get(columns.get(what, what)) or "").strip() for what in COLUMNS)
        file, row = file.replace("\\", "/").removeprefix("./"), Row(label, patient or None, view)
        if file and rows.setdefault(file, row) != row:
            raise DataError(
                f"the table {path} contradicts itself: line {number} differs from an earlier line about '{file}'"
            )
    return rows


def parse_merges(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``new=old1,old2`` and return old → new; DataError for another form, or one label in two merges."""
    merged: dict[str, str] = {}
    for text in texts:
        new, equals, olds = text.partition("=")
        names = [old.strip() for old in olds.split(",") if old.strip()]
        if not equals or not new.strip() or not names:
            raise DataError(f"--merge '{text}' must look like new=old1,old2")
        for old in names:
            if merged.setdefault(old, new.strip()) != new.strip():
                raise DataError(f"--merge puts '{old}' into '{merged[old]}' and into '{new.strip()}'")
    return merged


def merge_labels(rows: Mapping[str, Row], merged: Mapping[str, str], path: Path | None) -> dict[str, Row]:
    """Rename labels (old → new); DataError for one that the table ``path`` does not have, often a typing error."""
    labels = sorted({row.label for row in rows.values()} - {""})
    for old in merged:
        if old not in labels:
            raise DataError(
                f"--merge names the label '{old}', but {path or 'no table'} has {', '.join(labels) or 'none'}"
            )
    return {file: replace(row, label=merged.get(row.label, row.label)) for file, row in rows.items()}
