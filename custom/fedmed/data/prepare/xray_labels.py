"""Labels of X-rays: the table that gives them, and what its values mean."""

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedmed.data.structure import check_name
from fedmed.data.tables import OF_IMAGES, csv_errors, table_lines
from fedmed.errors import DataError

COLUMNS = ("file", "label", "patient", "view")
NOTHING = {"nan", "null", "n/a", "#n/a", "<na>"}  # what programs write for an empty cell, in small letters
FINDING = {"1": "positive", "1.0": "positive", "0": "negative", "0.0": "negative", "-1": "-1", "-1.0": "-1"}  # CheXpert
DROP, UNCERTAIN = "drop", ("drop", "negative", "positive")  # of --uncertain
SEPARATORS = "|;,"


@dataclass(frozen=True)
class Row:
    """Row of a table about one file; ``label``, ``view`` and ``fault`` may be "", and ``patient`` None."""

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
    except OSError as error:
        raise DataError(f"the table {path} cannot be read ({error.strerror}); correct the path") from error
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
            also = [f"--{one}-column" for one in COLUMNS if one != what and columns.get(one, one) not in present]
            raise DataError(
                f"{path} has no column '{name}' (it has {', '.join(present)}); name it with --{what}-column"
                + (f", and what the table has of the others with {', '.join(also)}" if also else "")
            )
    rows: dict[str, Row] = {}
    for number, record in enumerate(reader, start=2):
        file, label, patient, view = ((record.get(columns.get(what, what)) or "").strip() for what in COLUMNS)
        file, row = file.replace("\\", "/").removeprefix("./"), Row(label, patient or None, view)
        if file and rows.setdefault(file, row) != row:
            raise DataError(f"{path} contradicts itself: line {number} differs from an earlier line about '{file}'")
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
            raise DataError(f"--merge names the label '{old}'; {path or 'no table'} has {', '.join(labels) or 'none'}")
    return {file: replace(row, label=merged.get(row.label, row.label)) for file, row in rows.items()}


def settle_labels(
    rows: Mapping[str, Row],
    separator: str,
    uncertain: str,
    classes: Sequence[str],
    merged: Mapping[str, str],
    path: Path | None,
) -> tuple[dict[str, Row], list[str]]:
    """Return the rows with at most one class each, still as the table spells it, and what was done, with counts.

    Args:
        rows: file → row of the table.
        separator: between the findings of a cell; "" = a cell holds one.
        uncertain: what becomes of −1 beside 1 and 0 (``UNCERTAIN``); "" = the cells are no such numbers.
        classes: those that count, where a cell has several findings; empty = all.
        merged: the table's word → the class that it becomes.
        path: of the table.

    Raises:
        DataError: other values than −1, 0 and 1 with ``uncertain``; a class whose letters are others in the table.
    """
    empty = Counter(row.label for row in rows.values() if row.label.lower() in NOTHING)
    notes = [f"{count} × '{word}' in the table, read as no label" for word, count in sorted(empty.items())]
    rows = {file: replace(row, label="") if row.label in empty else row for file, row in rows.items()}
    if uncertain:
        if others := sorted({row.label for row in rows.values()} - {"", *FINDING}):
            raise DataError(f"--uncertain is for tables of 1, 0, -1 and empty cells; this one has '{others[0]}' too")
        count = sum(FINDING.get(row.label) == "-1" for row in rows.values())
        notes += [f"{count} × -1 (uncertain): {uncertain}"] if count else []
        known = FINDING | dict.fromkeys(("-1", "-1.0"), "" if uncertain == DROP else uncertain)
        rows = {file: replace(row, label=known.get(row.label, "")) for file, row in rows.items()}
    findings = {file: _findings(row.label, separator) for file, row in rows.items()}
    if classes:
        notes += _unmatched(classes, [merged.get(one, one) for names in findings.values() for one in names], path)
    if separator:
        settled = {file: _one_finding(row, findings[file], classes, merged) for file, row in rows.items()}
        none = sum(bool(findings[file]) and not row.label and not row.fault for file, row in settled.items())
        notes += [f"{none} rows have findings of which --classes names none; read as no label"] if none else []
        rows = settled
    return dict(rows), notes


def _findings(cell: str, separator: str) -> list[str]:
    return [part for one in (cell.split(separator) if separator else [cell]) if (part := one.strip())]


def _one_finding(row: Row, findings: Sequence[str], classes: Sequence[str], merged: Mapping[str, str]) -> Row:
    counted = {merged.get(one, one): one for one in findings if not classes or merged.get(one, one) in classes}
    if len(counted) > 1:
        which = "leave one of them out of --classes" if classes else "--classes names those that count"
        return replace(row, label="", fault=f"several findings ({', '.join(counted)}), and a class is one; {which}")
    return replace(row, label=next(iter(counted.values()), ""))


def _unmatched(classes: Sequence[str], labels: Iterable[str], path: Path | None) -> list[str]:
    """Note the classes that no row has; DataError for one that the table spells in other letters."""
    present = set(labels)
    for name in classes:
        others = sorted(present - set(classes))
        if other := next((one for one in others if _same_letters(one) == _same_letters(name)), ""):
            remedy = f"write it so in --classes, or rename it: --merge '{name}={other}'"
            raise DataError(f"{path}: --classes names '{name}', and the table has '{other}'; {remedy}")
    missing = [name for name in classes if name not in present]
    return [f"--classes names {', '.join(missing)}, which no row of the table has"] if missing else []


def _same_letters(name: str) -> str:
    return " ".join(name.casefold().split())


def check_labels(labels: Iterable[str], path: Path | None) -> list[str]:
    """Refuse labels of a table that would become classes by oversight; return what to look at.

    Raises:
        DataError: −1 for uncertain, several findings in a cell, the same word in other letters, or a name that no job
            can carry; says what to do.
    """
    names = sorted(set(labels) - {""})
    for remedy in _remedies(names):
        raise DataError(f"{path}: {remedy}")
    if names and set(names) <= FINDING.keys():
        return [f"the classes are called {' and '.join(names)}; --uncertain drop calls 1 positive and 0 negative"]
    return []


def _remedies(names: Sequence[str]) -> Iterator[str]:
    """Each fault of names of classes, and what to do about it."""
    if {"-1", "-1.0"} & set(names):
        said = f"the labels {', '.join(names)} look like findings of which -1 is uncertain"
        yield f"{said}; say what becomes of it with --uncertain {'|'.join(UNCERTAIN)}, or name the classes with --merge"
    spellings = defaultdict(list)
    for name in names:
        spellings[_same_letters(name)].append(name)
        if mark := next((mark for mark in SEPARATORS if mark in name), ""):
            yield f"the label '{name}' looks like several findings; --separator '{mark}' divides such cells"
    for same in spellings.values():
        if len(same) > 1:
            said = f"the labels {', '.join(same)} differ in their letters alone"
            yield f"{said}; --merge '{same[-1]}={','.join(same[:-1])}' makes them one"
    for name in names:
        try:
            check_name(name)
        except ValueError as error:
            yield f"no job can have a class '{name}': {error}; --merge 'NEW={name}' renames it"
