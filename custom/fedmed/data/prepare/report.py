"""Report what a preparation found: a CSV line for each case, a page to read, and a summary for the terminal."""

import csv
import io
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedmed.data.prepare.case import Case, Checked
from fedmed.errors import DataError

LISTS = ("training", "validation", "testing", "unlabeled")
AXES = ("x", "y", "z")
COLUMNS = (
    *("case", "patient", "status", "list", "reason", "notes"),
    *(f"voxels_{axis}" for axis in AXES),
    *(f"spacing_{axis}_mm" for axis in AXES),
    *("hu_min", "hu_mean", "hu_max", "mask_ml", "found", "image", "mask"),
)


def write_csv(path: Path, cases: Sequence[Case], files: dict[str, dict[str, str]]) -> None:
    """Write one line for each case.

    Args:
        path: the file to write.
        cases: in the order of the lines.
        files: case → ``image`` and ``label`` as in the datalist.
    """
    path.write_bytes(table(COLUMNS, (_row(case, files.get(case.case, {})) for case in cases)))


def table(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> bytes:
    """CSV with a heading. None is an empty cell.

    Texts come from files and their names: one that a spreadsheet would run as a formula gets the quote that marks it
    as text, and a name that is not UTF-8 is escaped.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode(errors="backslashreplace")


def _cell(value: object) -> object:
    text = str(value) if isinstance(value, (str, Path)) else ""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def _row(case: Case, files: dict[str, str]) -> dict[str, object]:
    return {
        "case": case.case,
        "patient": case.patient,
        "status": "used" if case.lists else "left out" if case.usable else "refused",
        "list": " ".join(case.lists),
        "reason": "; ".join(case.faults),
        "notes": "; ".join(case.notes),
        **{f"voxels_{axis}": n for axis, n in zip(AXES, case.shape, strict=False)},
        **{f"spacing_{axis}_mm": mm for axis, mm in zip(AXES, case.spacing, strict=False)},
        **{name: getattr(case, name) for name in ("hu_min", "hu_mean", "hu_max", "mask_ml", "found")},
        **{"image": files.get("image", ""), "mask": files.get("label", "")},
    }


def list_table(cases: Sequence[Case]) -> list[tuple[str, ...]]:
    """Rows (list, cases, patients, slice spacing, HU range, median mask volume), a heading first."""
    rows = [("list", "cases", "patients", "slice spacing (mm)", "HU", "mask, median (ml)")]
    for name in LISTS:
        if held := [case for case in cases if name in case.lists]:
            volumes = [case.mask_ml for case in held if case.mask_ml is not None and name != "unlabeled"]
            rows.append(
                (
                    name,
                    str(len(held)),
                    str(len({case.patient for case in held})),
                    _range([slice_spacing(case) for case in held]),
                    _range([case.hu_min for case in held] + [case.hu_max for case in held]),
                    f"{statistics.median(volumes):.3g}" if volumes else "–",
                )
            )
    return rows


def slice_spacing(case: Case) -> float:
    """Distance of the slices in mm: spacing along the axis that is stored last."""
    return case.spacing[-1]


def refusals(cases: Sequence[Checked], limit: int = 20) -> list[str]:
    """One sentence for each case that was refused, at most ``limit`` and then the number of the others."""
    return shortened([f"{case.case}: {'; '.join(case.faults)}" for case in cases if not case.usable], limit)


def require_used(cases: Sequence[Checked], folder: Path, what: str) -> None:
    """Raise DataError, with the reasons, when no case is in a list; ``what`` they are, such as "volumes"."""
    if not any(case.lists for case in cases):
        reasons = "".join(f"\n    {line}" for line in refusals(cases))
        raise DataError(f"{folder}: none of {len(cases)} {what} is usable:{reasons}")


def shortened(lines: Sequence[str], limit: int) -> list[str]:
    """The first ``limit`` lines, and the number of the others."""
    return [*lines[:limit], *([f"… and {len(lines) - limit} more"] if len(lines) > limit else [])]


def note_counts(cases: Sequence[Checked]) -> list[str]:
    """Each note with the number of usable cases that have it and the name of the first one."""
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for case in cases:
        for note in case.notes if case.usable else ():
            counts[note] += 1
            first.setdefault(note, case.case)
    return [f"{count} × {note} ({first[note]}{', …' if count > 1 else ''})" for note, count in sorted(counts.items())]


def write_markdown(
    path: Path, title: str, settings: dict[str, object], cases: Sequence[Case], stray: list[str]
) -> None:
    """Write the page for a person to read: settings, lists, refusals with reasons, notes."""
    used = sum(bool(case.lists) for case in cases)
    refused = sum(not case.usable for case in cases)
    summary = f"{len(cases)} volumes found, {used} used, {refused} refused."
    write_page(path, title, settings, summary, list_table(cases), sections(cases, stray))


def sections(cases: Sequence[Case], stray: Sequence[str], limit: int = 1000) -> dict[str, list[str]]:
    """The parts after the table of the lists: heading → lines, possibly none."""
    return {
        "Refused": refusals(cases, limit),
        "Worth a look": note_counts(cases),
        "Masks without an image": list(stray),
    }


def write_page(
    path: Path,
    title: str,
    settings: Mapping[str, object],
    summary: str,
    rows: Sequence[Sequence[str]],
    lists: Mapping[str, Sequence[str]],
) -> None:
    """Write a page: settings, one sentence, one table (its heading first), and the lists that are not empty."""
    head, *body = rows
    lines = [f"# {title}", "", *(f"- {name}: `{value}`" for name, value in settings.items()), "", summary, ""]
    lines += [_markdown_row(head), _markdown_row(("---",) * len(head)), *map(_markdown_row, body), ""]
    for name, entries in lists.items():
        if entries:
            lines += [f"## {name}", "", *(f"- {entry}" for entry in entries), ""]
    path.write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.4g}", f"{max(values):.4g}"
    return low if low == high else f"{low} … {high}"
