"""Scores of several labels at once: counts that add up over videos and sites, and average precision."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from monai.metrics.average_precision import compute_average_precision
from numpy.typing import ArrayLike, NDArray

from fedmed.errors import FedMedError
from fedmed.training.metrics import f1_scores, precision_scores, recall_scores

COUNTED = ("tp", "fp", "fn")  # and, with the name of a label, what a site sends: tp_grasper
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """True positives, false positives and false negatives of J labels, (J,) each.

    The sum of two is the counts of all their frames: the score of several sites is that of the union of their frames,
    though no prediction leaves a site (Markert 2022: local and global scores).
    """

    tp: Counts
    fp: Counts
    fn: Counts

    @classmethod
    def of(cls, truth: ArrayLike, predicted: ArrayLike) -> "LabelCounts":
        """Count bool (n, J) against bool (n, J).

        Raises:
            FedMedError: other shapes.
        """
        true, called = np.asarray(truth, bool), np.asarray(predicted, bool)
        if true.ndim != 2 or true.shape != called.shape:
            raise FedMedError(f"counts: truth {true.shape} and prediction {called.shape}; use (n, J) for both")
        return cls((true & called).sum(0), (~true & called).sum(0), (true & ~called).sum(0))

    @classmethod
    def none(cls, labels: int) -> "LabelCounts":
        """Of no frame."""
        return cls(*(np.zeros(labels, np.int64) for _ in COUNTED))

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, float | None], labels: Sequence[str]) -> "LabelCounts | None":
        """What :meth:`numbers` gave; None where a count is missing, as a site may keep it."""
        found = sent_counts(numbers, [f"{count}_{label}" for count in COUNTED for label in labels])
        return None if found is None else cls(*found.reshape(len(COUNTED), -1))

    def numbers(self, labels: Sequence[str]) -> dict[str, int]:
        """``tp_<label>`` and so on, plain numbers as a site sends them."""
        rows = {"tp": self.tp, "fp": self.fp, "fn": self.fn}
        return {f"{count}_{label}": int(n) for count, row in rows.items() for label, n in zip(labels, row, strict=True)}

    def __add__(self, other: "LabelCounts") -> "LabelCounts":
        return LabelCounts(self.tp + other.tp, self.fp + other.fp, self.fn + other.fn)

    def precision(self, absent: str = "zero") -> np.ndarray:
        """(J,); of a label that is never predicted as ``absent`` says: see :func:`f1_scores`."""
        return precision_scores(self.tp, self.fp, absent)

    def recall(self, absent: str = "zero") -> np.ndarray:
        """(J,); of a label that is never present as ``absent`` says."""
        return recall_scores(self.tp, self.fn, absent)

    def f1(self, absent: str = "zero") -> np.ndarray:
        """(J,); of a label that is neither present nor predicted as ``absent`` says."""
        return f1_scores(self.tp, self.fp, self.fn, absent)


def sent_counts(numbers: Mapping[str, float | None], names: Sequence[str]) -> Counts | None:
    """The counts of these names that a site sent, in their order; None where one is missing, as a site may keep it."""
    found = [numbers.get(name) for name in names]
    return None if None in found else np.array(found, np.float64).astype(np.int64)


def average_precisions(truth: ArrayLike, probabilities: ArrayLike, absent: str = "zero") -> np.ndarray:
    """Average precision of each label by MONAI: the mean of the precisions at which recall grows, ties together.

    Args:
        truth: bool (n, J).
        probabilities: (n, J), higher for a more certain label.
        absent: of a label that no frame has, ``zero`` or ``skip`` (NaN). One that every frame has gets 1.

    Returns:
        float64 (J,).

    Raises:
        FedMedError: shapes that do not fit, or an unknown ``absent``.
    """
    true, values = np.asarray(truth, bool), np.asarray(probabilities, np.float64)
    if true.ndim != 2 or true.shape != values.shape:
        raise FedMedError(
            f"average precision: truth {true.shape} and probabilities {values.shape}; use (n, J) for both"
        )
    found = recall_scores(true.sum(0), np.zeros(true.shape[1]), absent)  # 1 for a label that there is
    for label in np.flatnonzero(true.any(0) & ~true.all(0)):
        values_of, truth_of = (torch.from_numpy(part[:, label].copy()) for part in (values, true.astype(np.int64)))
        found[label] = compute_average_precision(values_of, truth_of)
    return found


def macro(scores: np.ndarray) -> float:
    """Mean over the labels without NaN; NaN where all are."""
    known = scores[np.isfinite(scores)]
    return float(known.mean()) if len(known) else float("nan")
