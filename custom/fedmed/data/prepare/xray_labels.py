"""Cells of a table that are no class yet: uncertain findings, several in one cell, words for nothing, other letters."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedmed.data.prepare.xray_table import Row
from fedmed.data.structure import check_name
from fedmed.errors import DataError

NOTHING = {"nan", "null", "n/a", "#n/a", "<na>"}  # what programs write for an empty cell, in small letters
FINDING = {"1": "positive", "1.0": "positive", "0": "negative", "0.0": "negative", "-1": "-1", "-1.0": "-1"}  # CheXpert
DROP, UNCERTAIN = "drop", ("drop", "negative", "positive")  # of --uncertain
SEPARATORS = "|;,"


def settle_labels(
    rows: Mapping[str, Row], separator: str, uncertain: str, classes: Sequence[str]
) -> tuple[dict[str, Row], list[str]]:
    """Return the rows with at most one class each, and what was done, with counts.

    Args:
        rows: file → row of the table.
        separator: between the findings of a cell; "" = a cell holds one.
        uncertain: what becomes of −1 beside 1 and 0 (``UNCERTAIN``); "" = the cells are no such numbers.
        classes: those that count, where a cell has several findings; empty = all.

    Raises:
        DataError: other values than −1, 0 and 1 with ``uncertain``.
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
    if separator:
        rows = {file: _one_finding(row, separator, classes) for file, row in rows.items()}
    return dict(rows), notes


def _one_finding(row: Row, separator: str, classes: Sequence[str]) -> Row:
    found = [part.strip() for part in row.label.split(separator) if part.strip()]
    counted = [part for part in found if part in classes] if classes else found
    if len(counted) > 1:
        which = "leave one of them out of --classes" if classes else "--classes names those that count"
        return replace(row, label="", fault=f"several findings ({', '.join(counted)}), and a class is one; {which}")
    return replace(row, label=counted[0] if counted else "")


def check_labels(labels: Iterable[str], path: Path | None) -> list[str]:
    """Refuse labels that would become classes by oversight; return what to look at.

    Args:
        labels: all that would become classes, some of them often.
        path: of the table.

    Raises:
        DataError: −1 for uncertain, several findings in a cell, the same word in other letters, or a name that no job
            can carry; says what to do.
    """
    names = sorted(set(labels) - {""})
    for remedy in (_uncertain(names), _several(names), _spelt_twice(names), _not_a_name(names)):
        if remedy:
            raise DataError(f"{path}: {remedy}")
    if names and set(names) <= FINDING.keys():
        return [f"the classes are called {' and '.join(names)}; --uncertain drop calls 1 positive and 0 negative"]
    return []


def _uncertain(names: Sequence[str]) -> str:
    if not {"-1", "-1.0"} & set(names):
        return ""
    said = f"the labels {', '.join(names)} look like findings of which -1 is uncertain"
    return f"{said}; say what becomes of it with --uncertain {'|'.join(UNCERTAIN)}, or name the classes with --merge"


def _several(names: Sequence[str]) -> str:
    for name in names:
        if mark := next((mark for mark in SEPARATORS if mark in name), ""):
            return f"the label '{name}' looks like several findings; --separator '{mark}' divides such cells"
    return ""


def _spelt_twice(names: Sequence[str]) -> str:
    spellings = defaultdict(list)
    for name in names:
        spellings[" ".join(name.casefold().split())].append(name)
    for same in spellings.values():
        if len(same) > 1:
            said = f"the labels {', '.join(same)} differ in their letters alone"
            return f"{said}; --merge '{same[-1]}={','.join(same[:-1])}' makes them one"
    return ""


def _not_a_name(names: Sequence[str]) -> str:
    for name in names:
        try:
            check_name(name)
        except ValueError as error:
            return f"no job can have a class '{name}': {error}; --merge 'NEW={name}' renames it"
    return ""
