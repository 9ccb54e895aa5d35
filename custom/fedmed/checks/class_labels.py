"""Do a site's classes fit a job, and are its images what the job's network wants?"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedmed.checks.entries import LISTS, Entry
from fedmed.checks.site_findings import SiteFinding
from fedmed.data.prepare.case import Case
from fedmed.reports.words import NOTHING


def judge_classes(
    entries: Sequence[Entry], classes: Sequence[str] | None, role: str | None, chooses: bool = True
) -> Iterator[SiteFinding]:
    """Say where labels are none of the job's classes, and where a list has too few of them.

    Args:
        entries: of all lists.
        classes: the job's; None = unknown, then labels are only counted.
        role: what the site does with labels.
        chooses: whether the model is chosen by validation lists.
    """
    for entry in entries:
        if entry.label is not None and classes is not None and entry.label not in classes:
            text = f"{entry.where}: the label is '{entry.label}', which is no class of the job; use one of "
            yield SiteFinding("data", "class", f"{text}{', '.join(classes)}", entry.list, entry.number)
    counts = class_counts(entries)
    if role == "supervised":
        for key in ("training", *(("validation",) if chooses else ())):
            if len(counts[key]) == 1:
                text = f"all images of '{key}' are '{next(iter(counts[key]))}'; list images of another class too"
                yield SiteFinding("data", "one_class", text, key)
        if missing := [name for name in classes or () if counts["training"] and name not in counts["training"]]:
            text = f"no training image is of the class '{missing[0]}'"
            more = f" (nor of {', '.join(missing[1:])})" if missing[1:] else ""
            yield SiteFinding("data", "no_class", f"{text}{more}; fine, if this site has none", "training")
    if len(counts["testing"]) == 1 and role:
        text = f"all images of 'testing' are '{next(iter(counts['testing']))}', so there is no AUROC here"
        yield SiteFinding("data", "no_auroc", f"{text}; list images of another class too", "testing")


def class_counts(entries: Sequence[Entry]) -> dict[str, Counter[str]]:
    """List -> class -> number of entries."""
    counts: dict[str, Counter[str]] = {key: Counter() for key in LISTS}
    for entry in entries:
        if entry.label is not None:
            counts[entry.list][entry.label] += 1
    return counts


def judge_pictures(cases: Mapping[Entry, Case], size: Any) -> Iterator[SiteFinding]:
    """Say which images cannot be read, which have two classes, and how many are smaller than the network's input.

    Args:
        cases: the inspected entries.
        size: pixels of the square that an image is fitted into, or None.
    """
    labels: dict[str, set[str]] = defaultdict(set)
    places: dict[str, list[Entry]] = defaultdict(list)
    for entry, case in cases.items():
        for fault in case.faults:
            yield SiteFinding("data", "picture", f"{entry.where}: {fault}", entry.list, entry.number)
        if case.usable and entry.label is not None:
            labels[case.content].add(entry.label)
            places[case.content].append(entry)
    for content in (content for content, names in labels.items() if len(names) > 1):
        shown = "; ".join(f"{entry.where} as '{entry.label}'" for entry in places[content][:4])
        first, *others = ((entry.list, entry.number) for entry in places[content])
        text = f"the same image is listed with two classes: {shown}; keep the right one"
        yield SiteFinding("data", "two_classes", text, *first, also=tuple(others))
    usable = {id(case): case for case in cases.values() if case.usable}.values()
    small = [case for case in usable if type(size) is int and max(case.shape) < size]
    if small:
        text = f"{len(small)} images are smaller than the network's input of {size} pixels, the first is "
        yield SiteFinding("data", "small_picture", f"{text}{small[0].case}; export them in full size if there is more")


def picture_table(entries: Sequence[Entry], cases: Sequence[Case]) -> list[tuple[str, ...]]:
    """Rows (list, images, patients, pixels, classes), a heading first; exact numbers, for the hospital's own screen."""
    rows, counts = [("list", "images", "patients", "longer side (pixels)", "classes")], class_counts(entries)
    for key in LISTS:
        listed = [entry for entry in entries if entry.list == key]
        if not listed:
            continue
        sides = sorted(max(case.shape) for case in cases if key in case.lists)
        patients = str(len({entry.patient for entry in listed})) if all(entry.patient for entry in listed) else NOTHING
        pixels = f"{sides[0]} … {sides[-1]}" if sides else NOTHING
        told = ", ".join(f"{name} {number}" for name, number in sorted(counts[key].items()))
        rows.append((key, str(len(listed)), patients, pixels, told or NOTHING))
    return rows
