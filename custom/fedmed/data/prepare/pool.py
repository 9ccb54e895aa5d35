"""Inspect many files in parallel; and read in a process of its own what may take all memory or crash."""

import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import BrokenProcessPool

from fedmed.data.read_limits import limit_memory, share_of
from fedmed.errors import DataError
from fedmed.worker_processes import end_with_parent

Item = TypeVar("Item")
Known = TypeVar("Known")
Track = Callable[[Iterator[Known], int], Iterator[Known]]
DIED = "the process that read it died, probably for lack of memory; remove it, or export it again"
_reader: ProcessPoolExecutor | None = None


def run_all(
    work: Callable[[Item], Known],
    sources: Sequence[Item],
    workers: int,
    track: Track[Known] | None = None,
    *,
    apart: bool = False,
    died: Callable[[Item], Known] | None = None,
) -> list[Known]:
    """Do ``work``, which never raises for bad data, for every source; the result does not depend on ``workers``.

    A worker's memory is limited to its share of what is free, see :mod:`fedmed.data.read_limits`.

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
    """Do ``work`` in a process of its own, with limited memory; raise its errors, or DataError where that died."""
    try:
        with _pool(1) as pool:
            return pool.submit(_limited, partial(work, *arguments), share_of(1)).result()
    except BrokenProcessPool as error:
        raise DataError(DIED) from error


def _results(
    work: Callable[[Item], Known], sources: Sequence[Item], processes: int, died: Callable[[Item], Known] | None
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


def _one(work: Callable[[Item], Known], source: Item, died: Callable[[Item], Known] | None) -> tuple[Known, bool]:
    """Result of one source, and whether the process lived on."""
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
    """Processes that end with this one; a single one is kept.

    They are joblib's: not forked, since ITK's threads do not survive that, and they do not run the caller's script
    again, as those of the standard library do where it has no ``if __name__ == "__main__"``.
    """
    global _reader
    pool = (_reader or _started(1)) if processes == 1 else _started(processes)
    _reader = pool if processes == 1 else _reader
    broken = True
    try:
        yield pool
        broken = False
    except Exception as error:
        broken = isinstance(error, BrokenProcessPool)  # an error of the work leaves its process as it was
        raise
    finally:
        if broken or processes > 1:  # also at Ctrl-C: nothing is read on that nobody waits for
            _reader = None if pool is _reader else _reader
            pool.shutdown(kill_workers=broken)


class _Quiet(ProcessPoolExecutor):
    """Starts processes that Ctrl-C does not reach: it ends them in the middle of their imports, with a traceback each.

    A blocked signal stays blocked in what is started meanwhile; here it waits until the process has been started.
    """

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        resource_tracker.ensure_running()  # which the first process would start, and Python 3.11 unblocks SIGINT after
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started(processes: int) -> ProcessPoolExecutor:
    # joblib ends a process that has come to hold much memory after its work, which is welcome, and warns of it.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given to the executor", UserWarning)
    return _Quiet(processes, initializer=end_with_parent, initargs=(os.getpid(),))
