"""Inspection of CT with masks, and of CT with classes, in a site's check."""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from fedmed.checks.bins import Fact
from fedmed.checks.entries import Cases, Entry, voxels
from fedmed.checks.inspection import ClassInspection, Inspection, with_lists
from fedmed.checks.site_findings import SiteFinding, data_finding
from fedmed.data.prepare.case import Case, Source
from fedmed.data.prepare.ct_inspect import inspect_all, list_table
from fedmed.data.prepare.pool import Track

SPACING = (0.05, 25.0)  # mm; outside lie headers in metres or micrometres, and no scanner's
_COPY = "same voxels as"
# What a preparation says of a volume -> (kind, what to do). The first that matches counts; a test asks for all.
_FAULTS = (
    (r"unreadable", "unreadable", "restore the file or remove the entry"),
    (r"does not fit into memory", "memory", "check with --workers 1 or on a machine with more memory"),
    (r"spacing of zero|affine has values|^no affine", "geometry", "export the image again with its geometry"),
    (r"^voxels of .* mm|^its header gives voxels", "spacing", "correct the header or export the image again"),
    (r"^\d+D|^2D|^empty \(shape", "volume", "list one 3D volume a file"),
    (r"NaN or infinite|not HU|implausible HU|in HU$|^empty", "values", "export the image again in Hounsfield units"),
    (r"^mask has shape|^mask lies", "mask_grid", "draw or resample the mask on the grid of its image"),
    (r"^mask has values|^mask voxels", "mask_values", "save it with 0 outside and 1 inside"),
)
_NOTES = (
    (r"mask is empty", "empty_mask", "right for a healthy patient; otherwise draw the mask"),
    (r"8-bit picture|rescale intercept", "odd_values", "compare it with its source"),
    (r"^the mask's axes", "moved_mask", "training does so too; nothing is lost"),
    (r"sform and qform", "two_affines", "look at it and its mask in your viewer, and save it with one"),
)


class CTInspection(Inspection):
    """Volumes in Hounsfield units, and masks on their grids."""

    noun = "scan"
    facts: ClassVar[tuple[Fact, ...]] = (
        ("Slice spacing (mm)", (1, 2, 3, 5, 8), lambda case: case.spacing[-1]),
        ("Spacing within a slice (mm)", (0.5, 0.7, 0.9, 1.5, 3), lambda case: min(case.spacing[:2])),
        ("Slices", (30, 60, 120, 250, 500), lambda case: case.shape[-1]),
        ("Voxels along the longer side of a slice", (128, 256, 512, 768), lambda case: max(case.shape[:2])),
        ("Lowest value (HU)", (-2000, -1100, -1000, -900, 0), lambda case: case.hu_min),
        ("Highest value (HU)", (300, 1000, 2000, 3100, 5000), lambda case: case.hu_max),
        ("Mask (ml)", (0.001, 1, 10, 100, 500), lambda case: case.mask_ml),
    )

    def open(
        self,
        entries: Sequence[Entry],
        workers: int = 1,
        track: Track | None = None,
        bundle: str | None = None,
        site_bundles: Path | None = None,
    ) -> dict[Entry, Case]:
        masked = {entry.image: entry.mask for entry in entries if entry.mask}
        files = {entry: (entry.image, entry.mask or masked.get(entry.image)) for entry in entries}
        pairs = list(dict.fromkeys(files.values()))
        sources = [Source(str(place), (image,), mask=mask) for place, (image, mask) in enumerate(pairs)]
        cases = dict(zip(pairs, inspect_all(sources, None, workers, track=track), strict=True))
        for case in cases.values():  # a copy is no fault of the file; it is judged by the lists that hold it
            case.faults = [fault for fault in case.faults if not fault.startswith(_COPY)] + _odd_size(case)
        return with_lists({entry: cases[files[entry]] for entry in entries})

    def judge_images(self, cases: Cases, size: int | None) -> Iterator[SiteFinding]:
        """Faults and notes of a preparation, and training masks that are all empty, where training stops."""
        yield from _of_cases(cases)
        volumes = [case.mask_ml for entry, case in cases.items() if entry.list == "training" and case.usable]
        if volumes and not any(volumes):
            text = f"none of {len(volumes)} usable training masks has a foreground voxel; correct the masks"
            yield data_finding("no_foreground", text, "training")

    def rows(self, entries: Sequence[Entry], cases: Sequence[Case]) -> list[tuple[str, ...]]:
        return list_table(cases) if cases else []

    def cache_bytes(self, entries: Sequence[Entry], cases: Cases, sample: Sequence[Entry], mean: float | None) -> int:
        """A prepared case is resampled to one spacing, so its size grows with its volume in mm³.

        Without a measurement, cases count as they are: four bytes a voxel, and one for the mask.
        """
        used = [entry for entry in entries if entry not in cases or cases[entry].usable]
        if mean and sample:
            measured = sum(_volume(entry, cases) for entry in sample)
            return round(mean * len(sample) * sum(_volume(entry, cases) for entry in used) / measured)
        return sum(voxels(entry, cases) * (5 if entry.mask else 4) for entry in used)


class ClassifiedCTInspection(ClassInspection, CTInspection):
    """Volumes in Hounsfield units whose labels are classes."""

    facts = CTInspection.facts[:-1]

    def judge_images(self, cases: Cases, size: int | None) -> Iterator[SiteFinding]:
        return _of_cases(cases)


def _odd_size(case: Case) -> list[str]:
    low, high = SPACING
    if not case.spacing or low <= min(case.spacing) <= max(case.spacing) <= high:
        return []
    return [f"voxels of {'×'.join(f'{size:g}' for size in case.spacing)} mm, which no scanner makes"]


def _of_cases(cases: Cases) -> Iterator[SiteFinding]:
    """A sentence about the mask is of another entry that names the same image, where this one has no mask."""
    for entry, case in cases.items():
        for fault in case.faults:
            if entry.mask or not fault.startswith("mask"):
                kind, remedy = explain(fault, _FAULTS) or ("data", "correct it or remove the entry")
                yield data_finding(kind, f"{entry.where}: {fault}; {remedy}", entry.list, entry.number)
        for note in case.notes if case.usable else ():
            if entry.mask or "mask" not in note:
                kind, remedy = explain(note, _NOTES) or ("odd_values", "have a look at it")
                yield data_finding(kind, f"{entry.where}: {note}; {remedy}", entry.list, entry.number)


def explain(sentence: str, table: Sequence[tuple[str, str, str]]) -> tuple[str, str] | None:
    """Return (kind, what to do) of a preparation's sentence."""
    return next(((kind, remedy) for pattern, kind, remedy in table if re.search(pattern, sentence)), None)


def _volume(entry: Entry, cases: Cases) -> float:
    return voxels(entry, cases) * math.prod(cases[entry].spacing if entry in cases else ())
