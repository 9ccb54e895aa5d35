"""Inspect many files in parallel; and read in a process of its own what may take all memory or crash."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from fedmed.data.memory_share import limit_memory, share_of
from fedmed.errors import DataError

Found = TypeVar("Found")
Known = TypeVar("Known")
Track = Callable[[Iterator[Known], int], Iterator[Known]]
DIED = "the process that read it died, probably for lack of memory; remove it, or export it again"
_reader: ProcessPoolExecutor | None = None


def run_all(
    work: Callable[[Found], Known],
    sources: Sequence[Found],
    workers: int,
    track: Track[Known] | None = None,
    *,
    apart: bool = False,
    died: Callable[[Found], Known] | None = None,
) -> list[Known]:
    """Do ``work``, which never raises for bad data, for every source; the result does not depend on ``workers``.

    A worker's memory is limited to its share of what is free, see :mod:`fedmed.data.memory_share`.

    Args:
        work: can be pickled.
        sources: what was found.
        workers: processes; 1 works in this one.
        track: shows progress: takes the results as they come, and their number, and yields them again.
        apart: whether a single worker is a process of its own too, for files whose decoder may take any memory.
        died: what to say of a source at which the process died; the others are read all the same.

    Raises:
        DataError: a worker process died, and nothing says what is known of its source then.
    """
    track = track or (lambda results, total: results)
    alone = workers <= 1 or len(sources) < 2
    if alone and not apart:
        return list(track(map(work, sources), len(sources)))
    results = _results(work, sources, 1 if alone else min(workers, len(sources)), died)
    return list(track(results, len(sources)))


def read_apart(work: Callable[..., Known], *arguments: Any) -> Known:
    """Do ``work`` in a process of its own, with limited memory; its errors are raised here.

    Raises:
        DataError: the process died.
    """
    try:
        with _pool(1) as pool:
            return pool.submit(_limited, partial(work, *arguments), share_of(1)).result()
    except BrokenProcessPool as error:
        raise DataError(DIED) from error


def _results(
    work: Callable[[Found], Known], sources: Sequence[Found], processes: int, died: Callable[[Found], Known] | None
) -> Iterator[Known]:
    """Results in the order of the sources. Where a process dies, those that it may have read are read one by one."""
    done, chunk = 0, max(1, min(16, len(sources) // (4 * processes)))
    while done < len(sources):
        left = sources[done:]
        try:
            with _pool(processes) as pool:
                limited = partial(_limited, share=share_of(processes))
                for known in pool.map(limited, [partial(work, source) for source in left], chunksize=chunk):
                    done += 1
                    yield known
        except BrokenProcessPool:
            for source in sources[done : done + 2 * chunk * processes]:
                known, alive = _one(work, source, died)
                done += 1
                yield known
                if not alive:
                    break


def _one(work: Callable[[Found], Known], source: Found, died: Callable[[Found], Known] | None) -> tuple[Known, bool]:
    """What is known of one source, and whether the process lived on."""
    try:
        return read_apart(work, source), True
    except DataError as error:
        if died is None or not isinstance(error.__cause__, BrokenProcessPool):
            raise DataError(f"{getattr(source, 'case', source)}: {error}") from error
        return died(source), False


def _limited(work: Callable[[], Known], share: int) -> Known:
    limit_memory(share)
    return work()


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that are spawned, not forked, since ITK's threads do not survive a fork; a single one is kept."""
    global _reader
    context = multiprocessing.get_context("spawn")
    if processes > 1:
        with ProcessPoolExecutor(processes, mp_context=context) as pool:
            yield pool
        return
    # Without max_tasks_per_child, with which Python 3.11 may wait for ever.
    _reader = _reader or ProcessPoolExecutor(1, mp_context=context)
    try:
        yield _reader
    except BrokenProcessPool:
        _reader = None
        raise
