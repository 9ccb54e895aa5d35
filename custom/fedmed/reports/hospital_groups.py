"""Groups of a hospital's test cases, by what its datalist, the images' headers and the true masks say of them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import nibabel as nib
import numpy as np

from fedmed.data.datalist import LABEL_KEYS, PATH_KEYS
from fedmed.data.image_size import NIFTI, UNREADABLE
from fedmed.data.patients import BLOCKS_OF
from fedmed.plain_text import in_terminal
from fedmed.reports.gain import PATIENT, signed
from fedmed.reports.hospital_tests import PLACE, TOGETHER, ComparedTests
from fedmed.reports.run_files import column
from fedmed.reports.sheet import SheetTable
from fedmed.reports.words import count, fixed, join

LEAST = 5  # cases of a group that is shown
MOST = 12  # different values of an attribute that are words
FEW = 5  # different numbers that are groups as they are; of more there are three bands
PARTS = 3
NOT_SAID = ""
VOLUME, EMPTY = "true volume, ml", "nothing to mark"
SLICES = "distance of slices, mm, by the headers of the images"
NOT_ATTRIBUTES = {*PATH_KEYS, *LABEL_KEYS, PATIENT, BLOCKS_OF}
THICKNESS = ("thickness", "spacing")  # words in the name of an attribute that says how far slices are apart


@dataclass(frozen=True)
class Attribute:
    """Groups by one attribute.

    Attributes:
        name: of the attribute, for a reader.
        groups: names of the groups in the order of the table.
        members: of each case the name of its group, or empty where nobody says it.
    """

    name: str
    groups: Sequence[str]
    members: Sequence[str]


@dataclass(frozen=True)
class GroupTables:
    """Tables of groups, and in sentences what has no table."""

    tables: Sequence[SheetTable]
    left_out: Sequence[str]


def group_tables(tests: ComparedTests, entries: Sequence[Any], root: Path) -> GroupTables:
    """Compare the two models in the groups of each attribute.

    Args:
        tests: of the models.
        entries: of the datalist's testing list.
        root: folder of the images.
    """
    tables, left_out = [], []
    for attribute in _attributes(tests, entries, root):
        table = attribute if isinstance(attribute, str) else _table(tests, attribute)
        if isinstance(table, str):
            left_out.append(table)
        else:
            tables.append(table)
    return GroupTables(tables, left_out)


def grouped(name: str, values: Sequence[Any]) -> Attribute | str:
    """Sort cases into groups, numbers into thirds where there are more than five; or say why that cannot be.

    Args:
        name: of the attribute.
        values: of each case; None or an empty text where nobody says it.
    """
    known = [value for value in values if value is not None and value != NOT_SAID]
    if not known:
        return f"{name}: no case says it"
    if any(not isinstance(value, str | int | float) for value in known):
        return f"{name}: some of its values are neither a number nor a text"
    numbers = [_number(value) for value in values]
    if sum(number is not None for number in numbers) == len(known):
        return _of_numbers(name, numbers)
    texts = [NOT_SAID if value is None else _text(value) for value in values]
    groups = sorted(set(texts) - {NOT_SAID})
    if len(groups) > MOST:
        return f"{name}: {len(groups)} different values are too many for groups"
    return Attribute(name, groups, texts) if len(groups) > 1 else f"{name}: the same for all cases"


def _of_numbers(name: str, numbers: Sequence[float | None]) -> Attribute | str:
    known = np.array([number for number in numbers if number is not None])
    distinct = np.unique(known)
    if len(distinct) == 1:
        return f"{name}: the same for all cases"
    places = np.searchsorted(np.quantile(known, np.arange(1, PARTS) / PARTS), known)
    if len(distinct) <= FEW:
        places = np.searchsorted(distinct, known)
    parts = [known[places == place] for place in np.unique(places)]
    groups = [f"{part.min():g}" if part.min() == part.max() else f"{part.min():g} to {part.max():g}" for part in parts]
    named = iter(np.array(groups)[np.searchsorted(np.unique(places), places)].tolist())
    return Attribute(name, groups, [NOT_SAID if number is None else next(named) for number in numbers])


def _table(tests: ComparedTests, attribute: Attribute) -> SheetTable | str:
    members = np.array(attribute.members)
    sizes = {group: int((members == group).sum()) for group in attribute.groups}
    shown = [group for group, size in sizes.items() if size >= LEAST]
    if not shown:
        return f"{attribute.name}: each group has fewer than {LEAST} cases"
    gains = [tests.gain(group, rows=members == group) for group in shown]
    rows = [
        [one.name, one.of, fixed(one.theirs), fixed(one.ours), signed(one.difference), one.span, one.verdict]
        for one in gains
    ]
    columns = ["group", "cases#", "alone#", "together#", "difference#", "95 % interval#", "finding"]
    return SheetTable(f"By {attribute.name}", _note(sizes, members), columns, rows)


def _note(sizes: Mapping[str, int], members: np.ndarray) -> str:
    few = [size for size in sizes.values() if size < LEAST]
    silent = int((members == NOT_SAID).sum())
    parts = [f"{count(sum(few), 'case')} in {_groups(len(few))} of fewer than {LEAST} cases"] if few else []
    parts += [f"{count(silent, 'case')} of which nobody says it"] if silent else []
    return f"Left out: {join(parts)}." if parts else ""


def _groups(n: int) -> str:
    return "one group" if n == 1 else f"{n} groups"


def _attributes(tests: ComparedTests, entries: Sequence[Any], root: Path) -> Iterator[Attribute | str]:
    cases = tests.tables[TOGETHER]
    if len(entries) != tests.listed:
        yield "attributes of the datalist: its test list is no longer the one that was tested"
    else:
        listed = [entries[place] if isinstance(entries[place], Mapping) else {} for place in cases[PLACE]]
        names = dict.fromkeys(str(name) for entry in listed for name in entry if name not in NOT_ATTRIBUTES)
        for name in names:
            yield grouped(in_terminal(name, 60).replace("_", " "), [entry.get(name) for entry in listed])
        files = [str(entry.get("image", "")) for entry in listed]
        if all(file.lower().endswith(NIFTI) for file in files) and not any(w in n for w in THICKNESS for n in names):
            yield grouped(SLICES, [slice_distance(root / file) for file in files])
    if "truth_ml" in cases:
        yield _true_volumes(column(cases, "truth_ml").tolist())


def _true_volumes(volumes: Sequence[float]) -> Attribute | str:
    """Thirds of the cases with something to mark, and the others."""
    sizes = grouped(VOLUME, [float(f"{volume:.3g}") if volume > 0 else None for volume in volumes])
    if isinstance(sizes, str) or all(sizes.members):
        return sizes
    return Attribute(VOLUME, [EMPTY, *sizes.groups], [group or EMPTY for group in sizes.members])


def slice_distance(path: Path) -> float | None:
    """Longest side of the voxels of a NIfTI image in mm, by its header alone; None where it cannot be read."""
    try:
        sides = cast(nib.Nifti1Image, nib.load(path)).header.get_zooms()[:3]
    except UNREADABLE:
        return None
    return round(float(max(sides)), 2) if sides else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _text(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else in_terminal(str(value).strip(), 60)
