"""Write the files of a site of X-rays: datalist, site YAML and the report of its preparation."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedmed.data.prepare.place import DATALIST, REPORT
from fedmed.data.prepare.report import LISTS, note_counts, refusals, shortened, table, write_page
from fedmed.data.prepare.write import write_site_yaml
from fedmed.data.prepare.xray_case import XrayCase

COLUMNS = (
    *("case", "patient", "status", "list", "label", "reason", "notes"),
    *("kind", "modality", "view", "rows", "columns", "low", "high"),
)


def write_xray_files(
    staging: Path,
    out: Path,
    site: str,
    data_root: Path,
    cases: Sequence[XrayCase],
    classes: Sequence[str],
    settings: Mapping[str, object],
    missing: Sequence[str] = (),
) -> None:
    """Write datalist, site YAML and both reports into ``staging``, with the paths they will have in ``out``."""
    write_xray_datalist(staging / DATALIST, cases, staging, out, data_root)
    write_site_yaml(staging / f"{site}.yaml", site, data_root, out / DATALIST)
    (staging / f"{REPORT}.csv").write_bytes(table(COLUMNS, map(_row, cases)))
    used, refused = sum(bool(case.lists) for case in cases), sum(not case.usable for case in cases)
    summary = f"{len(cases)} images found, {used} used, {refused} refused."
    title = f"Preparation of site '{site}'"
    rows, lists = class_table(cases, classes), xray_sections(cases, missing)
    write_page(staging / f"{REPORT}.md", title, settings, summary, rows, lists)


def write_xray_datalist(path: Path, cases: Sequence[XrayCase], staging: Path, out: Path, data_root: Path) -> None:
    """Write the lists with ``image``, ``label`` (name of a class) and ``patient``; ``unlabeled`` has no labels."""
    content: dict[str, list[dict[str, str]]] = {}
    for case in cases:
        for name in case.lists:
            final = out / case.image.relative_to(staging) if case.image.is_relative_to(staging) else case.image
            label = {} if name == "unlabeled" else {"label": case.label}
            entry = {"image": final.relative_to(data_root).as_posix(), **label, "patient": case.patient}
            content.setdefault(name, []).append(entry)
    ordered = {name: content[name] for name in LISTS if name in content}
    path.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def class_table(cases: Sequence[XrayCase], classes: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows (list, images, patients, images of each class, shorter side in pixels), a heading first."""
    rows = [("list", "images", "patients", *classes, "pixels, shorter side")]
    for name in LISTS:
        if held := [case for case in cases if name in case.lists]:
            counts = [sum(case.label == label for case in held) for label in classes]
            sides = [min(case.rows, case.columns) for case in held]
            size = f"{min(sides)}" if min(sides) == max(sides) else f"{min(sides)} … {max(sides)}"
            shown = ["–" if name == "unlabeled" else str(count) for count in counts]
            rows.append((name, str(len(held)), str(len({case.patient for case in held})), *shown, size))
    return rows


def xray_sections(cases: Sequence[XrayCase], missing: Sequence[str], limit: int = 1000) -> dict[str, list[str]]:
    """The parts after the table: heading → lines, possibly none."""
    return {
        "Refused": refusals(cases, limit),
        "Worth a look": [*_single_class(cases), *note_counts(cases)],
        "In the table, but not in the folder": shortened(missing, limit),
    }


def _single_class(cases: Sequence[XrayCase]) -> list[str]:
    """A warning if training has one class: the site can pre-train and take part, but cannot learn to classify alone."""
    trained = {case.label for case in cases if "training" in case.lists}
    if len(trained) != 1:
        return []
    return [
        f"every label in training is '{trained.pop()}': without other sites' classes nothing can be learned or scored"
    ]


def _row(case: XrayCase) -> dict[str, object]:
    status = "used" if case.lists else "left out" if case.usable else "refused"
    texts = {"status": status, "list": " ".join(case.lists), "reason": "; ".join(case.faults)}
    facts = {name: getattr(case, name) for name in COLUMNS if hasattr(case, name)}
    return {**facts, **texts, "notes": "; ".join(case.notes)}
