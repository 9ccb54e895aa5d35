"""Which class was called instead of which: a table of counts that adds up over videos and sites, and its scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmed.errors import FedMedError
from fedmed.training.label_counts import LabelCounts, sent_counts


@dataclass(frozen=True, eq=False)
class Confusion:
    """Frames of true class i that were called j: ``table`` int64 (C, C), of C classes of which a frame has one.

    The sum of two is that of all their frames: the score of several sites is that of the union of their frames, though
    no prediction leaves a site.
    """

    table: NDArray[np.int64]

    @classmethod
    def of(cls, truth: ArrayLike, called: ArrayLike, classes: int) -> "Confusion":
        """Count classes (n,) against classes (n,), whole numbers from 0.

        Raises:
            FedMedError: other shapes, or a number that is not one of the classes.
        """
        true, found = np.asarray(truth, np.int64), np.asarray(called, np.int64)
        if true.ndim != 1 or true.shape != found.shape:
            raise FedMedError(f"confusion: truth {true.shape} and prediction {found.shape}; use (n,) for both")
        if len(true) and not 0 <= min(true.min(), found.min()) <= max(true.max(), found.max()) < classes:
            raise FedMedError(f"confusion: a class is not one of 0 … {classes - 1}; correct 'classes' or the labels")
        return cls(np.bincount(true * classes + found, minlength=classes**2).reshape(classes, classes))

    @classmethod
    def none(cls, classes: int) -> "Confusion":
        """Of no frame."""
        return cls(np.zeros((classes, classes), np.int64))

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, float | None], names: Sequence[str]) -> "Confusion | None":
        """What :meth:`numbers` gave; None where a count is missing, as a site may keep it."""
        found = sent_counts(numbers, [cell(true, called) for true in names for called in names])
        return None if found is None or not names else cls(found.reshape(len(names), -1))

    def numbers(self, names: Sequence[str]) -> dict[str, int]:
        """``frames_<class>><class>``, truth first: plain numbers as a site sends them."""
        return {cell(names[i], names[j]): int(count) for (i, j), count in np.ndenumerate(self.table)}

    def __add__(self, other: "Confusion") -> "Confusion":
        return Confusion(self.table + other.table)

    @property
    def counts(self) -> LabelCounts:
        """True positives, false positives and false negatives of each class."""
        right = np.diagonal(self.table)
        return LabelCounts(right, self.table.sum(0) - right, self.table.sum(1) - right)

    def scores(self) -> dict[str, float]:
        """``f1``, ``accuracy``, ``precision`` and ``recall``; NaN without frames.

        The latter two and F1 are means over the classes that occur in truth or prediction (Kassem et al. 2023); one of
        them that is never called has precision 0.
        """
        counts, frames = self.counts, int(self.table.sum())
        if not frames:
            return dict.fromkeys(("f1", "accuracy", "precision", "recall"), float("nan"))
        occurs = counts.tp + counts.fp + counts.fn > 0
        each = {"f1": counts.f1(), "precision": counts.precision(), "recall": counts.recall()}
        means = {name: float(values[occurs].mean()) for name, values in each.items()}
        return {"f1": means.pop("f1"), "accuracy": int(np.trace(self.table)) / frames, **means}


def cell(true: str, called: str) -> str:
    """Name of a count that a site sends; names of classes have no ``>``."""
    return f"frames_{true}>{called}"
