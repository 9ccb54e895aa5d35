"""Batches that are gone over several times, loaded once and ahead of their use."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Batch = Mapping[str, Any]


class LoadedAhead:
    """The same list of batches, however often it is gone over; while one is used, a thread loads the next.

    Args:
        loader: gives the batches. It is gone over once, in another thread, so it must not draw from the generators that
            the training draws from; FedMed's loaders have their own.
        prepare: makes of a batch what is kept, in the thread that uses it, once for each batch.

    Attributes:
        ready: what was used so far.

    Use it as a context: the thread ends with it, also where not all batches were used.
    """

    def __init__(self, loader: Iterable[Batch], prepare: Callable[[Batch], Batch]) -> None:
        self.ready: list[Batch] = []
        self._prepare, self._coming = prepare, iter(loader)
        self._pool = ThreadPoolExecutor(1, "loads batches")
        self._next = self._pool.submit(next, self._coming, None)
        self._whole = False

    def __enter__(self) -> "LoadedAhead":
        return self

    def __exit__(self, *_: Any) -> None:
        self._pool.shutdown(cancel_futures=True)

    def __iter__(self) -> Iterator[Batch]:
        place = 0
        while place < len(self.ready) or self._load():
            yield self.ready[place]
            place += 1

    def _load(self) -> bool:
        """Take the batch that was loaded and begin with the next; whether there was one."""
        batch = None if self._whole else self._next.result()
        if batch is None:
            self._whole = True
            return False
        self._next = self._pool.submit(next, self._coming, None)
        self.ready.append(self._prepare(batch))
        return True
