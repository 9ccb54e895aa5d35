"""What a site's check opens and lists of CT with masks."""

import math
from collections.abc import Iterator, Mapping, Sequence

from fedmed.checks.bins import Bins, Fact, summarise
from fedmed.checks.ct_images import inspect_entries, judge
from fedmed.checks.entries import Entry
from fedmed.checks.inspection import Reading
from fedmed.checks.site_findings import SiteFinding
from fedmed.checks.training import Measured
from fedmed.data.prepare.case import Case
from fedmed.data.prepare.ct_site import list_table

FACTS: tuple[Fact, ...] = (
    ("Slice spacing (mm)", (1, 2, 3, 5, 8), lambda case: case.spacing[-1]),
    ("Spacing within a slice (mm)", (0.5, 0.7, 0.9, 1.5, 3), lambda case: min(case.spacing[:2])),
    ("Slices", (30, 60, 120, 250, 500), lambda case: case.shape[-1]),
    ("Voxels along the longer side of a slice", (128, 256, 512, 768), lambda case: max(case.shape[:2])),
    ("Lowest value (HU)", (-2000, -1100, -1000, -900, 0), lambda case: case.hu_min),
    ("Highest value (HU)", (300, 1000, 2000, 3100, 5000), lambda case: case.hu_max),
    ("Mask (ml)", (0.001, 1, 10, 100, 500), lambda case: case.mask_ml),
)


class CTInspection:
    """Volumes in Hounsfield units, and masks on their grids."""

    def open(self, entries: Sequence[Entry], how: Reading) -> dict[Entry, Case]:
        return inspect_entries(entries, how.workers, how.track)

    def judge(self, cases: Mapping[Entry, Case], size: int | None) -> list[SiteFinding]:
        return judge(cases)

    def judge_labels(
        self, entries: Sequence[Entry], classes: Sequence[str] | None, role: str | None, chooses: bool
    ) -> Iterator[SiteFinding]:
        """Nothing: a mask is judged with its image."""
        return iter(())

    def rows(self, entries: Sequence[Entry], cases: Sequence[Case]) -> list[tuple[str, ...]]:
        return list_table(cases) if cases else []

    def bins(self, cases: Sequence[Case]) -> list[Bins]:
        """Spacing, size, intensity and mask volume over the usable cases."""
        return summarise(cases, FACTS)

    def cache_bytes(
        self,
        entries: Sequence[Entry],
        cases: Mapping[Entry, Case],
        sample: Sequence[Entry],
        measured: Measured | None,
    ) -> int:
        """A prepared case is resampled to one spacing, so its size grows with its volume in mm.

        The sample says how much a mm³ needs. Without a measurement, cases count as they are: four bytes a voxel, and
        one for the mask.
        """
        used = [entry for entry in entries if entry not in cases or cases[entry].usable]
        if measured and measured.cache_bytes and sample:
            held = sum(_volume(entry, cases) for entry in sample)
            return round(measured.cache_bytes * len(sample) * sum(_volume(entry, cases) for entry in used) / held)
        return sum(_voxels(entry, cases) * (5 if entry.mask else 4) for entry in used)


def _volume(entry: Entry, cases: Mapping[Entry, Case]) -> float:
    return _voxels(entry, cases) * math.prod(cases[entry].spacing if entry in cases else ())


def _voxels(entry: Entry, cases: Mapping[Entry, Case]) -> int:
    if entry not in cases:
        return entry.image.stat().st_size  # not inspected: compressed CT has about one byte a voxel
    return math.prod(cases[entry].shape)
