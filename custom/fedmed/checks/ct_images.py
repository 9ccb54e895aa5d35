"""Open every image and mask once, and compare them with each other. Reading alone: nothing is written."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from fedmed.checks.entries import SCORED, Entry
from fedmed.checks.site_findings import SiteFinding
from fedmed.data.prepare.case import Case, Source
from fedmed.data.prepare.ct_inspect import inspect_all
from fedmed.data.prepare.pool import Track

SPACING = (0.05, 25.0)  # mm; outside lie a header in metres or micrometres, and none of any scanner
_COPY = "same voxels as"
# What a preparation says of a volume -> (kind, what to do). The first that matches counts; a test asks for all.
_FAULTS = (
    (r"unreadable", "unreadable", "restore the file or remove the entry"),
    (r"does not fit into memory", "memory", "check with --workers 1 or on a machine with more memory"),
    (r"spacing of zero|affine has values", "geometry", "export the image again with its geometry"),
    (r"^voxels of .* mm", "spacing", "correct the header or export the image again"),
    (r"^\d+D|^2D|^empty \(shape", "volume", "list one 3D volume a file"),
    (r"NaN or infinite|not HU|implausible HU|in HU$|^empty", "values", "export the image again in Hounsfield units"),
    (r"^mask has shape|^mask lies", "mask_grid", "draw or resample the mask on the grid of its image"),
    (r"^mask has values|^mask voxels", "mask_values", "save it with 0 outside and 1 inside"),
)
_NOTES = (
    (r"mask is empty", "empty_mask", "right for a healthy patient; otherwise draw the mask"),
    (r"8-bit picture|rescale intercept", "odd_values", "compare it with its source"),
)


def inspect_entries(entries: Sequence[Entry], workers: int = 1, track: Track | None = None) -> dict[Entry, Case]:
    """Inspect the files of all entries; a file that several entries name is opened once.

    Raises:
        DataError: a worker process died.
    """
    masked = {entry.image: entry.mask for entry in entries if entry.mask}
    pairs = list(dict.fromkeys((entry.image, entry.mask or masked.get(entry.image)) for entry in entries))
    sources = [Source(str(place), (image,), mask=mask) for place, (image, mask) in enumerate(pairs)]
    # NIfTI is never converted, so nothing is written into the folder that a preparation would convert to.
    cases = dict(zip(pairs, inspect_all(sources, Path("unused"), workers, track=track), strict=True))
    for case in cases.values():  # a copy is no fault of the file; it is judged by the lists that hold it
        case.faults = [fault for fault in case.faults if not fault.startswith(_COPY)] + _odd_size(case)
    found = {entry: cases[entry.image, entry.mask or masked.get(entry.image)] for entry in entries}
    for entry, case in found.items():
        case.lists.append(entry.list)
        case.patient = entry.patient or case.patient
    return found


def _odd_size(case: Case) -> list[str]:
    low, high = SPACING
    if not case.spacing or low <= min(case.spacing) <= max(case.spacing) <= high:
        return []
    return [f"voxels of {'×'.join(f'{size:g}' for size in case.spacing)} mm, which no scanner makes"]


def judge(cases: Mapping[Entry, Case]) -> list[SiteFinding]:
    """Everything that is wrong with or odd about the inspected entries of CT."""
    findings: list[SiteFinding] = []
    for entry, case in cases.items():
        findings += _of_case(entry, case)
    return [*findings, *_no_foreground(cases), *judge_lists(cases, "scan")]


def judge_lists(cases: Mapping[Entry, Case], noun: str) -> list[SiteFinding]:
    """Patients and copies in two lists, and entries that name no patient; ``noun``: what an image is called."""
    findings = [*_two_lists("patient", cases, lambda entry, case: entry.patient, noun)]
    findings += _two_lists("copy", cases, lambda entry, case: case.content or None, noun)
    unnamed = [entry for entry in cases if entry.patient is None]
    if unnamed:
        text = (
            f"{len(unnamed)} entries have no 'patient', the first is {unnamed[0].where}; without it nobody can tell "
            "whether a patient is in two lists: add it, or make sure yourself"
        )
        findings.append(SiteFinding("data", "no_patient", text))
    return findings


def _of_case(entry: Entry, case: Case) -> Iterator[SiteFinding]:
    for fault in case.faults:
        if entry.mask is None and fault.startswith("mask"):
            continue  # of another entry that names the same image
        kind, remedy = explain(fault, _FAULTS) or ("data", "correct it or remove the entry")
        yield SiteFinding("data", kind, f"{entry.where}: {fault}; {remedy}", entry.list, entry.number)
    for note in case.notes if case.usable else ():
        if entry.mask is None and "mask" in note:
            continue
        kind, remedy = explain(note, _NOTES) or ("odd_values", "have a look at it")
        yield SiteFinding("data", kind, f"{entry.where}: {note}; {remedy}", entry.list, entry.number)


def explain(sentence: str, table: Sequence[tuple[str, str, str]]) -> tuple[str, str] | None:
    """Return (kind, what to do) of a preparation's sentence."""
    return next(((kind, remedy) for pattern, kind, remedy in table if re.search(pattern, sentence)), None)


def _no_foreground(cases: Mapping[Entry, Case]) -> Iterator[SiteFinding]:
    """Training on masks stops where no mask has any foreground."""
    volumes = [case.mask_ml for entry, case in cases.items() if entry.list == "training" and case.usable]
    if volumes and not any(volumes):
        text = f"none of {len(volumes)} usable training masks has a foreground voxel; correct the masks"
        yield SiteFinding("data", "no_foreground", text, "training")


def _two_lists(
    kind: str, cases: Mapping[Entry, Case], identity: Callable[[Entry, Case], str | None], noun: str
) -> Iterator[SiteFinding]:
    """A patient or a scan may be trained on with and without its mask, but not be scored by what it was trained on."""
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry, case in cases.items():
        if (key := identity(entry, case)) is not None:
            groups[key].append(entry)
    for key, group in groups.items():
        lists = {entry.list for entry in group}
        shown = "; ".join(entry.where for entry in group[:4]) + ("; …" if len(group) > 4 else "")
        first, *others = ((entry.list, entry.number) for entry in group)
        what = f"patient '{key}'" if kind == "patient" else f"the same {noun}"
        if len(lists) > 1 and lists & set(SCORED):
            text = f"{what} is in two lists: {shown}; a score would be too good: keep one list"
            yield SiteFinding("data", kind, text, *first, also=tuple(others))
        elif kind == "copy" and len(group) > 1:
            text = f"the same {noun} is listed more than once: {shown}; keep one if that was not meant"
            yield SiteFinding("data", "twice", text, *first, also=tuple(others))
