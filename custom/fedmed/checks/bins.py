"""Summarise many values in a few bins, so that nobody can be told from them."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedmed.checks.classes import class_counts
from fedmed.checks.entries import Entry
from fedmed.checks.pictures import Picture
from fedmed.data.prepare.case import Case

STEP = 5  # numbers are rounded to it, so that no rest of a sum tells of a single case


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
    counts = [0] * (len(edges) + 1)
    for value in values:
        counts[bisect_right(edges, value)] += 1
    shown = [f"{edge:,.6g}".replace(",", " ").replace("-", "−") for edge in edges]
    between = [f"{low} to {high}" for low, high in zip(shown, shown[1:], strict=False)]
    return Bins(name, tuple(zip([f"below {shown[0]}", *between, f"{shown[-1]} and more"], counts, strict=True)))


def rounded(count: int) -> float:
    """A number of cases as the page draws it: 0, half a step for a few, else the nearest multiple of ``STEP``."""
    return count and (STEP / 2 if count < STEP else STEP * round(count / STEP))


def shown(count: int) -> str:
    """A number of cases as the page says it."""
    return "0" if not count else f"under {STEP}" if count < STEP else f"about {rounded(count)}"


Fact = tuple[str, tuple[float, ...], Callable[[Case], float | None]]  # name, edges of the bins, value of a case
# Everything that the page tells of single cases.
_OF_CT: tuple[Fact, ...] = (
    ("Slice spacing (mm)", (1, 2, 3, 5, 8), lambda case: case.spacing[-1]),
    ("Spacing within a slice (mm)", (0.5, 0.7, 0.9, 1.5, 3), lambda case: min(case.spacing[:2])),
    ("Slices", (30, 60, 120, 250, 500), lambda case: case.shape[-1]),
    ("Voxels along the longer side of a slice", (128, 256, 512, 768), lambda case: max(case.shape[:2])),
    ("Lowest value (HU)", (-2000, -1100, -1000, -900, 0), lambda case: case.hu_min),
    ("Highest value (HU)", (300, 1000, 2000, 3100, 5000), lambda case: case.hu_max),
    ("Mask (ml)", (0.001, 1, 10, 100, 500), lambda case: case.mask_ml),
)
_OF_PICTURES: tuple[Fact, ...] = (
    ("Pixels along the longer side", (128, 256, 512, 1024, 2048, 3072), lambda case: max(case.shape)),
    ("Pixels along the shorter side", (128, 256, 512, 1024, 2048, 3072), lambda case: min(case.shape)),
    ("Mean brightness, 0 (black) to 1", (0.2, 0.35, 0.5, 0.65, 0.8), lambda case: case.mean),
)
FORMATS = ("DICOM", "PNG", "JPEG")


def summarise(cases: Sequence[Case]) -> list[Bins]:
    """Bins of spacing, size, intensity and mask volume over the usable cases; of radiographs, size and brightness."""
    usable = [case for case in cases if case.usable]
    pictures = [case for case in usable if isinstance(case, Picture)]
    found = []
    for name, edges, value in _OF_PICTURES if pictures else _OF_CT:
        values = [number for case in usable if (number := value(case)) is not None]
        if values:
            found.append(in_bins(name, values, edges))
    kinds = Counter(case.kind for case in pictures)
    return found + ([Bins("Files", tuple((kind, kinds[kind]) for kind in FORMATS))] if pictures else [])


def summarise_classes(entries: Sequence[Entry], classes: Sequence[str] | None) -> list[Bins]:
    """Images of each class in each list, for the job's classes alone: other words are the site's own."""
    counts = class_counts(entries) if classes else {}
    return [
        Bins(f"Classes of '{key}'", tuple((name, found[name]) for name in classes))
        for key, found in counts.items()
        if found
    ]
