"""Inspect many volumes at once, and find the copies among them."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

from fedmed.data.prepare.case import Case, Source
from fedmed.data.prepare.check import LIMITS, Limits
from fedmed.data.prepare.inspect import inspect
from fedmed.errors import DataError

Track = Callable[[Iterator[Case], int], Iterator[Case]]


def inspect_all(
    sources: Sequence[Source],
    converted: Path,
    workers: int = 1,
    limits: Limits = LIMITS,
    track: Track | None = None,
) -> list[Case]:
    """Inspect every source and mark copies as faulty; the result does not depend on ``workers``.

    Args:
        sources: what was found.
        converted: folder for NIfTI files made from DICOM series.
        workers: processes; 1 works in this one.
        limits: where a volume stops being plausible.
        track: shows progress: gets the cases as they come and their number, yields them again.

    Raises:
        DataError: a worker process died (most often for lack of memory).
    """
    work = partial(inspect, converted=converted, limits=limits)
    track = track or (lambda cases, total: cases)
    if workers <= 1 or len(sources) < 2:
        cases = list(track(map(work, sources), len(sources)))
    else:
        # Spawned, not forked: ITK's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        try:
            with ProcessPoolExecutor(min(workers, len(sources)), mp_context=context) as pool:
                cases = list(track(pool.map(work, sources), len(sources)))
        except BrokenProcessPool as error:
            raise DataError("a worker process died, probably for lack of memory; use --workers 1") from error
    refuse_copies(cases)
    return cases


def refuse_copies(cases: Sequence[Case]) -> None:
    """Mark every usable case whose voxels another one has too; a case with a mask is kept before one without."""
    kept: dict[str, str] = {}
    for case in sorted(cases, key=lambda case: (case.mask_ml is None, case.case)):
        if case.usable and kept.setdefault(case.content, case.case) != case.case:
            case.faults.append(f"same voxels as case '{kept[case.content]}'; one scan counts once")
            if case.image != case.found:
                case.image.unlink(missing_ok=True)
