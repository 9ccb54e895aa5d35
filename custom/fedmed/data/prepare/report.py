"""Report of a preparation on its cases: a CSV, a page to read, and the same for the terminal."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fedmed.data.datalist import UnlabelledEntry
from fedmed.data.prepare.case import Checked
from fedmed.errors import DataError
from fedmed.plain_text import as_code, in_csv, in_markdown

LISTS = ("training", "validation", "testing", "unlabeled")
AXES = ("x", "y", "z")
Rows = list[tuple[str, ...]]  # of a table, its heading first
AnyCase = TypeVar("AnyCase", bound=Checked)


@dataclass(frozen=True)
class Prepared:
    """A prepared site, and what a report shows of it."""

    out: Path  # the site's folder
    data_root: Path  # of its images
    cases: Sequence[Checked]
    what: str  # the cases are, such as "volumes"
    columns: Sequence[str]  # of the CSV
    rows: Rows  # one for each list that has cases
    sections: Mapping[str, Sequence[str]]  # after the table: heading → lines, possibly none
    classes: Sequence[str] | None = None  # of X-rays; None where labels are masks
    form: UnlabelledEntry | None = None  # of an entry, where it names something else than an image
    first: Sequence[str] = ()  # what stands on top: a score may be too good, or nearly nothing was read


def listed(cases: Sequence[AnyCase]) -> dict[str, list[AnyCase]]:
    """The cases of each list that has some."""
    lists = {name: [case for case in cases if name in case.lists] for name in LISTS}
    return {name: members for name, members in lists.items() if members}


def table(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> bytes:
    """CSV with a heading. None is an empty cell; what is not in ``columns`` is left out.

    Texts come from files and their names; see :func:`fedmed.plain_text.in_csv`.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writerow({name: in_csv(name) for name in columns})
    writer.writerows({name: in_csv(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def row_of(case: Checked, entry: Mapping[str, str]) -> dict[str, object]:
    """Everything that a CSV may say of a case; ``entry`` is its entry in the datalist, empty for one without."""
    return {
        **vars(case),
        "status": "used" if case.lists else "left out" if case.usable else "refused",
        "list": " ".join(case.lists),
        "reason": "; ".join(case.faults),
        "notes": "; ".join(case.notes),
        **{f"voxels_{axis}": n for axis, n in zip(AXES, case.shape, strict=False)},
        **{f"spacing_{axis}_mm": mm for axis, mm in zip(AXES, getattr(case, "spacing", ()), strict=False)},
        **dict(zip(("rows", "columns"), case.shape, strict=False)),
        **{"image": entry.get("image", ""), "mask": entry.get("label", "") if case.mask else ""},
        **{name: entry[name] for name in ("video", "labels") if name in entry},
    }


def refusals(cases: Sequence[Checked]) -> list[str]:
    """One sentence for each case that was refused."""
    return [f"{case.case}: {'; '.join(case.faults)}" for case in cases if not case.usable]


def require_used(cases: Sequence[Checked], folder: Path, what: str) -> None:
    """Raise DataError, with the reasons, when no case is in a list; ``what`` they are, such as "volumes"."""
    if not any(case.lists for case in cases):
        reasons = "".join(f"\n    {line}" for line in shortened(refusals(cases), 20))
        raise DataError(f"{folder}: none of {len(cases)} {what} is usable:{reasons}")


def shortened(lines: Sequence[str], limit: int) -> list[str]:
    """The first ``limit`` lines, and the number of the others."""
    return [*lines[:limit], *([f"… and {len(lines) - limit} more"] if len(lines) > limit else [])]


def note_counts(cases: Sequence[Checked]) -> list[str]:
    """Each note with the number of usable cases that have it and the name of the first one."""
    noted = [(note, case.case) for case in cases if case.usable for note in case.notes]
    first = dict(reversed(noted))
    counts = sorted(Counter(note for note, _ in noted).items())
    return [f"{count} × {note} ({first[note]}{', …' if count > 1 else ''})" for note, count in counts]


def page(prepared: Prepared, title: str, settings: Mapping[str, object]) -> str:
    """A page to read, in Markdown: settings, one sentence, the table of the lists, refusals and notes."""
    cases = prepared.cases
    used, refused = sum(bool(case.lists) for case in cases), sum(not case.usable for case in cases)
    heading, *body = prepared.rows
    cells = [list(map(in_markdown, heading)), ["---"] * len(heading), *(list(map(in_markdown, row)) for row in body)]
    rows = [f"| {' | '.join(row)} |" for row in cells]
    lines = [f"# {in_markdown(title)}", "", *(f"**{in_markdown(text)}**\n" for text in prepared.first)]
    lines += [*(f"- {name}: {as_code(value)}" for name, value in settings.items() if value is not None), ""]
    lines += [f"{len(cases)} {prepared.what} found, {used} used, {refused} refused.", "", *rows, ""]
    for name, entries in prepared.sections.items():
        if entries:
            lines += [f"## {name}", "", *(f"- {in_markdown(entry)}" for entry in shortened(entries, 1000)), ""]
    return "\n".join(lines)
