"""Inspect many volumes in parallel, and find the copies among them."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import TypeVar

from fedmed.data.prepare.case import Case, Source
from fedmed.data.prepare.check import LIMITS, Limits
from fedmed.data.prepare.inspect import inspect
from fedmed.errors import DataError

Found = TypeVar("Found")
Known = TypeVar("Known")
Track = Callable[[Iterator[Known], int], Iterator[Known]]


def run_all(
    work: Callable[[Found], Known], sources: Sequence[Found], workers: int, track: Track | None = None
) -> list[Known]:
    """Do ``work`` for every source, in their order; the result does not depend on ``workers``.

    Args:
        work: can be pickled, never raises for bad data.
        sources: what was found.
        workers: processes; 1 works in this one.
        track: shows progress: takes the results as they come, and their number, and yields them again.

    Raises:
        DataError: a worker process died (most often for lack of memory).
    """
    track = track or (lambda results, total: results)
    if workers <= 1 or len(sources) < 2:
        return list(track(map(work, sources), len(sources)))
    # Spawned, not forked: ITK's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    chunk = max(1, min(16, len(sources) // (4 * workers)))
    try:
        with ProcessPoolExecutor(min(workers, len(sources)), mp_context=context) as pool:
            return list(track(pool.map(work, sources, chunksize=chunk), len(sources)))
    except BrokenProcessPool as error:
        raise DataError("a worker process died, probably for lack of memory; use --workers 1") from error


def inspect_all(
    sources: Sequence[Source],
    converted: Path,
    workers: int = 1,
    limits: Limits = LIMITS,
    track: Track | None = None,
) -> list[Case]:
    """Inspect every source and mark copies as faulty.

    Args:
        sources: what was found.
        converted: folder for NIfTI files made from DICOM series.
        limits: beyond them a volume is not plausible.
        workers, track: see :func:`run_all`; so are the errors.
    """
    cases = run_all(partial(inspect, converted=converted, limits=limits), sources, workers, track)
    refuse_copies(cases)
    return cases


def refuse_copies(cases: Sequence[Case]) -> None:
    """Mark every usable case with the same voxels as another one; one with a mask is kept rather than one without."""
    kept: dict[str, str] = {}
    for case in sorted(cases, key=lambda case: (case.mask_ml is None, case.case)):
        if case.usable and kept.setdefault(case.content, case.case) != case.case:
            case.faults.append(f"same voxels as case '{kept[case.content]}'; one scan counts once")
            if case.image != case.found:
                case.image.unlink(missing_ok=True)
