"""Summarise many values, or labels of classes, in a few bins, so that nobody can be told from them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedmed.checks.entries import LISTS, Entry
from fedmed.checks.site_findings import SiteFinding, data_finding
from fedmed.data.prepare.case import Case
from fedmed.data.prepare.xray_view import count_views
from fedmed.reports.words import NOTHING

STEP = 5  # numbers are rounded to it, so that no rest of a sum tells of a single case
Fact = tuple[str, tuple[float, ...], Callable[[Case], float | None]]  # name, edges of the bins, value of a case


@dataclass(frozen=True)
class Bins:
    """Numbers of cases by the size of a value.

    Attributes:
        name: what was measured, with its unit.
        rows: (range as text, number of cases).
    """

    name: str
    rows: tuple[tuple[str, int], ...]


def in_bins(name: str, values: Sequence[float], edges: Sequence[float]) -> Bins:
    """Count ``values`` below the first edge, between two (the lower one included), and from the last one on."""
    counts = np.histogram(values, [-np.inf, *edges, np.inf])[0].tolist()
    texts = [f"{edge:,.6g}".replace(",", " ").replace("-", "−") for edge in edges]
    between = [f"{low} to {high}" for low, high in zip(texts, texts[1:], strict=False)]
    return Bins(name, tuple(zip([f"below {texts[0]}", *between, f"{texts[-1]} and more"], counts, strict=True)))


def rounded(count: int) -> float:
    """A number of cases as the page draws it: 0, half a step for a few, else the nearest multiple of ``STEP``."""
    return count and (STEP / 2 if count < STEP else STEP * round(count / STEP))


def shown(count: int) -> str:
    """A number of cases as the page says it."""
    return "0" if not count else f"under {STEP}" if count < STEP else f"about {rounded(count)}"


def summarise(cases: Sequence[Case], facts: Sequence[Fact]) -> list[Bins]:
    """Bins of each fact over the usable cases that have it."""
    bins = []
    for name, edges, value in facts:
        values = [number for case in cases if case.usable and (number := value(case)) is not None]
        if values:
            bins.append(in_bins(name, values, edges))
    return bins


def summarise_classes(entries: Sequence[Entry], classes: Sequence[str]) -> list[Bins]:
    """Images of each class in each list, for the job's classes alone: other words are the site's own."""
    counts = class_counts(entries) if classes else {}
    return [
        Bins(f"Classes of '{key}'", tuple((name, numbers[name]) for name in classes))
        for key, numbers in counts.items()
        if numbers
    ]


def judge_classes(
    entries: Sequence[Entry], classes: Sequence[str] | None, role: str | None, chooses: bool = True
) -> Iterator[SiteFinding]:
    """Say which labels are not among the job's classes, and where a list has too few of them.

    Args:
        entries: of all lists.
        classes: the job's; None = unknown, then labels are only counted.
        role, chooses: what the site does with labels, and whether the model is chosen by validation lists.
    """
    labels = sorted({entry.label for entry in entries if entry.label is not None})
    for entry in entries:
        if entry.label is not None and classes is not None and entry.label not in classes:
            text = f"{entry.where}: the label is '{entry.label}', which is not a class of the job; use one of "
            text += f"{', '.join(classes)}, or give it such a name (fedmed prepare cxr --merge NEW=OLD), "
            text += f"or name all that you have in the study, here: classes: [{', '.join(labels)}]"
            yield data_finding("class", text, entry.list, entry.number)
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
