"""Summarise many values in a few bins, so that nobody can be told from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedmed.checks.class_labels import class_counts
from fedmed.checks.entries import Entry
from fedmed.data.prepare.case import Case

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
    found = []
    for name, edges, value in facts:
        values = [number for case in cases if case.usable and (number := value(case)) is not None]
        if values:
            found.append(in_bins(name, values, edges))
    return found


def summarise_classes(entries: Sequence[Entry], classes: Sequence[str]) -> list[Bins]:
    """Images of each class in each list, for the job's classes alone: other words are the site's own."""
    counts = class_counts(entries) if classes else {}
    return [
        Bins(f"Classes of '{key}'", tuple((name, found[name]) for name in classes))
        for key, found in counts.items()
        if found
    ]
