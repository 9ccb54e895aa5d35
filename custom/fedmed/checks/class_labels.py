"""Do a site's classes fit a job?"""

from collections import Counter
from collections.abc import Iterator, Sequence

from fedmed.checks.entries import LISTS, Entry
from fedmed.checks.site_findings import SiteFinding, data_finding
from fedmed.data.prepare.case import Case
from fedmed.data.prepare.xray_view import count_views
from fedmed.reports.words import NOTHING


def judge_classes(
    entries: Sequence[Entry], classes: Sequence[str] | None, role: str | None, chooses: bool = True
) -> Iterator[SiteFinding]:
    """Say which labels are not among the job's classes, and where a list has too few of them.

    Args:
        entries: of all lists.
        classes: the job's; None = unknown, then labels are only counted.
        role, chooses: what the site does with labels, and whether the model is chosen by validation lists.
    """
    for entry in entries:
        if entry.label is not None and classes is not None and entry.label not in classes:
            text = f"{entry.where}: the label is '{entry.label}', which is not a class of the job; use one of "
            yield data_finding("class", f"{text}{', '.join(classes)}", entry.list, entry.number)
    counts = class_counts(entries)
    if role == "supervised":
        for key in ("training", *(("validation",) if chooses else ())):
            if len(counts[key]) == 1:
                text = f"all images of '{key}' are '{next(iter(counts[key]))}'; list images of another class too"
                yield data_finding("one_class", text, key)
        if missing := [name for name in classes or () if counts["training"] and name not in counts["training"]]:
            text = f"no training image is of the class '{missing[0]}'"
            more = f" (nor of {', '.join(missing[1:])})" if missing[1:] else ""
            yield data_finding("no_class", f"{text}{more}; fine, if this site has none", "training")
    if len(counts["testing"]) == 1 and role:
        text = f"all images of 'testing' are '{next(iter(counts['testing']))}', so there is no AUROC here"
        yield data_finding("no_auroc", f"{text}; list images of another class too", "testing")


def class_counts(entries: Sequence[Entry]) -> dict[str, Counter[str]]:
    """List -> class -> number of entries."""
    counts: dict[str, Counter[str]] = {key: Counter() for key in LISTS}
    for entry in entries:
        if entry.label is not None:
            counts[entry.list][entry.label] += 1
    return counts


def picture_table(entries: Sequence[Entry], cases: Sequence[Case]) -> list[tuple[str, ...]]:
    """Rows (list, images, patients, pixels, views, classes), a heading first; exact, for the hospital's own screen."""
    rows: list[tuple[str, ...]] = [("list", "images", "patients", "longer side (pixels)", "views", "classes")]
    for key, counts in class_counts(entries).items():
        if listed := [entry for entry in entries if entry.list == key]:
            sides = sorted(max(case.shape) for case in cases if key in case.lists)
            patients = str(len({e.patient for e in listed})) if all(e.patient for e in listed) else NOTHING
            pixels = f"{sides[0]} … {sides[-1]}" if sides else NOTHING
            views = count_views(getattr(case, "view", "") for case in cases if key in case.lists)
            classes = ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))
            rows.append((key, str(len(listed)), patients, pixels, views, classes or NOTHING))
    return rows
