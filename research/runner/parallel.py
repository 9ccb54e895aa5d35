"""Work in several processes by joblib, that end when their parent does, however it ends."""

import os
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.process_executor import BrokenProcessPool

from fedmed.errors import FedMedError, JobError
from fedmed.worker_processes import end_with_parent

Item = TypeVar("Item")


@dataclass(frozen=True)
class Failure:
    """Reason, in words, that kept an item from its result."""

    reason: str


def in_processes(
    items: Sequence[Item], jobs: int, work: Callable[[Item], Any], dask: str | None = None
) -> Generator[tuple[Item, Any], None, None]:
    """Do ``work`` on every item, ``jobs`` at a time, in other processes.

    Whatever stops the caller (an error, Ctrl-C, ``close``) stops the processes too. One that dies, for want of memory
    say, breaks joblib's whole pool: what was under way is then done again, one at a time, so that it is found out which
    item it was, and the others go on.

    Args:
        items: can be pickled.
        jobs: 1 or more.
        work: a function of a module.
        dask: address of a Dask scheduler whose workers see the same folders; None = processes of this machine.

    Yields:
        (item, result or :class:`Failure`), in the order in which they are done.

    Raises:
        JobError: no Dask here, or no scheduler at the address.
    """
    waiting = dict(enumerate(items))
    if dask:
        with _cluster(dask):
            yield from _results(waiting, jobs, work, [])
        return
    try:
        # Processes that joblib starts would live on until their work is done, and longer.
        with parallel_config("loky", initializer=end_with_parent, initargs=(os.getpid(),)):
            while waiting:
                begun: list[int] = []
                try:
                    yield from _results(waiting, jobs, work, begun)
                except BrokenProcessPool:
                    for place in [place for place in begun if place in waiting]:
                        yield from _alone(place, waiting, work)
    finally:
        get_reusable_executor(kill_workers=True).shutdown(kill_workers=True)


def _results(waiting: dict[int, Item], jobs: int, work: Callable, begun: list[int]) -> Iterator[tuple[Item, Any]]:
    """Results of what waits, each taken out of it; ``begun`` gets the places that have been handed out."""

    def calls() -> Iterator[Any]:
        for place in list(waiting):
            begun.append(place)
            yield delayed(_answer)(place, waiting[place], work)

    # A second process even for one job: joblib would otherwise do it in this one, and a crash would end all.
    pool = Parallel(max(2, jobs), batch_size=1, pre_dispatch=jobs, return_as="generator_unordered")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* which were still being processed")  # who stops them knows
        with closing(pool(calls())) as results:
            for place, result in results:
                yield waiting.pop(place), result


def _alone(place: int, waiting: dict[int, Item], work: Callable) -> Iterator[tuple[Item, Any]]:
    one = {place: waiting.pop(place)}
    try:
        yield from _results(one, 1, work, [])
    except BrokenProcessPool:
        yield one[place], Failure("its process ended without a result; if memory ran out, use fewer --jobs")


def _answer(place: int, item: Any, work: Callable[[Any], Any]) -> tuple[int, Any]:
    try:
        return place, work(item)
    except Exception as error:  # noqa: BLE001 - a defect in one item's work must not cost the others theirs
        plain = isinstance(error, FedMedError | OSError)
        return place, Failure(str(error) if plain else f"{type(error).__name__}: {error}")


def _cluster(address: str) -> Any:
    """A block in which joblib's work is done by a Dask cluster."""
    try:
        from distributed import Client
    except ImportError as error:
        raise JobError("--dask needs Dask, which is not installed: pip install 'fedmed[cluster]'") from error
    try:
        client = Client(address, timeout="30s")
    except (OSError, ValueError) as error:
        raise JobError(f"no Dask scheduler answers at {address} ({error}); start one, or leave out --dask") from error
    return parallel_config(backend="dask", client=client)
