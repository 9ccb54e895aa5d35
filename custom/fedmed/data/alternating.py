"""Batches of several loaders in turn."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from fedmed.errors import DataError


class Alternating:
    """A loader that gives a batch of each of its loaders in turn; one that has ended is left out.

    Two loaders of as many batches are mixed half and half, whatever the sizes of their data.

    Args:
        loaders: each with a length.

    Attributes:
        dataset: of the first loader.

    Raises:
        DataError: there are no loaders.
    """

    def __init__(self, loaders: Sequence[Any]) -> None:
        if not loaders:
            raise DataError("batches shall alternate between loaders, and there are no loaders; list one at least")
        self.loaders, self.dataset = list(loaders), getattr(loaders[0], "dataset", None)

    def __len__(self) -> int:
        return sum(map(len, self.loaders))

    def __iter__(self) -> Iterator[Any]:
        ended = object()
        for batches in zip_longest(*self.loaders, fillvalue=ended):
            yield from (batch for batch in batches if batch is not ended)
