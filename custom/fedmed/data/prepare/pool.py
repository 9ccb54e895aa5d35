"""Inspect many files in parallel."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from fedmed.errors import DataError

Found = TypeVar("Found")
Known = TypeVar("Known")
Track = Callable[[Iterator[Known], int], Iterator[Known]]


def run_all(
    work: Callable[[Found], Known], sources: Sequence[Found], workers: int, track: Track[Known] | None = None
) -> list[Known]:
    """Do ``work``, which never raises for bad data, for every source; the result does not depend on ``workers``.

    Args:
        work: can be pickled.
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
