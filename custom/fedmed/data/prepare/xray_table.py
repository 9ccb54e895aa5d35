"""The table of a folder of X-rays: which class and which patient each file has."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedmed.errors import DataError


@dataclass(frozen=True)
class Columns:
    """Names of a table's columns; a table without label or patient column says nothing about them."""

    file: str = "file"
    label: str = "label"
    patient: str = "patient"


@dataclass(frozen=True)
class Row:
    """What a table says of one file; without them ``label`` is "" and ``patient`` is None."""

    label: str
    patient: str | None


def read_table(path: Path, columns: Columns, named: Sequence[str] = ()) -> dict[str, Row]:
    """Read a CSV (comma, semicolon or tab) and return file → row; files are paths relative to the images' folder.

    Args:
        path: the table.
        columns: names of its columns.
        named: attributes of ``columns`` that the user gave, so that the table must have them.

    Raises:
        DataError: unreadable, without rows or one of the columns, or two rows of one file that differ.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the table {path} cannot be read ({error}); save it as CSV in UTF-8") from error
    lines = text.splitlines()
    if len(lines) < 2:
        raise DataError(f"the table {path} has no rows below its heading")
    reader = csv.DictReader(lines, delimiter=max(",;\t", key=lines[0].count))
    held = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = held
    for what in ("file", *named):
        if getattr(columns, what) not in held:
            raise DataError(
                f"the table {path} has no column '{getattr(columns, what)}' (it has {', '.join(held)}); name it with "
                f"--{what}-column"
            )
    rows: dict[str, Row] = {}
    for number, record in enumerate(reader, start=2):
        file = (record[columns.file] or "").strip().replace("\\", "/").removeprefix("./")
        if not file:
            continue
        row = Row((record.get(columns.label) or "").strip(), (record.get(columns.patient) or "").strip() or None)
        if rows.setdefault(file, row) != row:
            raise DataError(
                f"the table {path} contradicts itself: line {number} differs from an earlier line about '{file}'"
            )
    return rows


def merge_of(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``new=old1,old2`` and return old → new.

    Raises:
        DataError: another form, or one label in two merges.
    """
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


def check_used(merged: Mapping[str, str], rows: Mapping[str, Row], path: Path | None) -> None:
    """Raise DataError for a merged label that the table does not have: most often a typing error."""
    labels = sorted({row.label for row in rows.values()} - {""})
    for old in merged:
        if old not in labels:
            raise DataError(
                f"--merge names the label '{old}', but {path or 'no table'} has {', '.join(labels) or 'none'}"
            )
