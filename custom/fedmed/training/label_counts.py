"""Counts of labels and calls: by label, as a confusion matrix, and whether one class is called everywhere."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from monai.metrics.average_precision import compute_average_precision
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from fedmed.errors import FedMedError
from fedmed.training.metrics import f1_scores, ratios

COUNTED = ("tp", "fp", "fn")  # and, with the name of a label, what a site sends: tp_grasper
Counts = NDArray[np.int64]
RARE = 0.01  # share of images below which a class counts as not called
CLEARLY = 0.05  # rise of the mean entropy, of the largest that there is, from which on a model is less sure
TINY = 1e-12
TOLERANCE = 1e-3  # of a sum of probabilities


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
        """Count bool (n, J) against bool (n, J); FedMedError for other shapes."""
        true, called = np.asarray(truth, bool), np.asarray(predicted, bool)
        if true.ndim != 2 or true.shape != called.shape:
            raise FedMedError(f"counts: truth {true.shape} and prediction {called.shape}; use (n, J) for both")
        return cls((true & called).sum(0), (~true & called).sum(0), (true & ~called).sum(0))

    @classmethod
    def none(cls, labels: int) -> "LabelCounts":
        """Return the counts of no frame."""
        return cls(*(np.zeros(labels, np.int64) for _ in COUNTED))

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, float | None], labels: Sequence[str]) -> "LabelCounts | None":
        """Inverse of :meth:`numbers`; None where a count is missing, as a site may keep it."""
        counts = sent_counts(numbers, [f"{count}_{label}" for count in COUNTED for label in labels])
        return None if counts is None else cls(*counts.reshape(len(COUNTED), -1))

    def numbers(self, labels: Sequence[str]) -> dict[str, int]:
        """Return ``tp_<label>`` and so on, plain numbers as a site sends them."""
        rows = {count: zip(labels, getattr(self, count), strict=True) for count in COUNTED}
        return {f"{count}_{label}": int(n) for count, row in rows.items() for label, n in row}

    def __add__(self, other: "LabelCounts") -> "LabelCounts":
        return LabelCounts(self.tp + other.tp, self.fp + other.fp, self.fn + other.fn)

    def precision(self, absent: str = "zero") -> np.ndarray:
        """Return (J,), ``TP / (TP + FP)``; of a label that is never predicted as ``absent`` says: see :meth:`f1`."""
        return ratios(self.tp, self.tp + self.fp, absent)

    def recall(self, absent: str = "zero") -> np.ndarray:
        """Return (J,), ``TP / (TP + FN)``; of a label that is never present as ``absent`` says."""
        return ratios(self.tp, self.tp + self.fn, absent)

    def f1(self, absent: str = "zero") -> np.ndarray:
        """Return (J,), see :func:`fedmed.training.metrics.f1_scores`."""
        return f1_scores(self.tp, self.fp, self.fn, absent)


def sent_counts(numbers: Mapping[str, float | None], names: Sequence[str]) -> Counts | None:
    """Return a site's counts of these names, in their order; None where one is missing, as a site may keep it."""
    counts = [numbers.get(name) for name in names]
    return None if None in counts else np.array(counts, np.float64).astype(np.int64)


def average_precisions(truth: ArrayLike, probabilities: ArrayLike, absent: str = "zero") -> np.ndarray:
    """Return each label's average precision by MONAI: the mean of the precisions at which recall grows, ties together.

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
    precisions = ratios(true.sum(0), true.sum(0), absent)  # 1 for a label that there is
    for label in np.flatnonzero(true.any(0) & ~true.all(0)):
        values_of, truth_of = (torch.from_numpy(part[:, label].copy()) for part in (values, true.astype(np.int64)))
        precisions[label] = compute_average_precision(values_of, truth_of)
    return precisions


def macro(scores: np.ndarray) -> float:
    """Return the mean over the labels without NaN; NaN where all are."""
    known = scores[np.isfinite(scores)]
    return float(known.mean()) if len(known) else float("nan")


@dataclass(frozen=True, eq=False)
class Confusion:
    """Frames of true class i that were called j: ``table`` int64 (C, C), of C classes of which a frame has one.

    Sums as of :class:`LabelCounts`.
    """

    table: NDArray[np.int64]

    @classmethod
    def of(cls, truth: ArrayLike, called: ArrayLike, classes: int) -> "Confusion":
        """Count classes (n,) against classes (n,), whole numbers from 0.

        Raises:
            FedMedError: other shapes, or a number that is not one of the classes.
        """
        true, other = np.asarray(truth, np.int64), np.asarray(called, np.int64)
        if true.ndim != 1 or true.shape != other.shape:
            raise FedMedError(f"confusion: truth {true.shape} and prediction {other.shape}; use (n,) for both")
        if len(true) and not 0 <= min(true.min(), other.min()) <= max(true.max(), other.max()) < classes:
            raise FedMedError(f"confusion: a class is not one of 0 … {classes - 1}; correct 'classes' or the labels")
        return cls(np.bincount(true * classes + other, minlength=classes**2).reshape(classes, classes))

    @classmethod
    def none(cls, classes: int) -> "Confusion":
        """Return the counts of no frame."""
        return cls(np.zeros((classes, classes), np.int64))

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, float | None], names: Sequence[str]) -> "Confusion | None":
        """Inverse of :meth:`numbers`; None where a count is missing, as a site may keep it."""
        counts = sent_counts(numbers, [cell(true, called) for true in names for called in names])
        return None if counts is None or not names else cls(counts.reshape(len(names), -1))

    def numbers(self, names: Sequence[str]) -> dict[str, int]:
        """Return ``frames_<class>><class>``, truth first: plain numbers as a site sends them."""
        return {cell(names[i], names[j]): int(count) for (i, j), count in np.ndenumerate(self.table)}

    def __add__(self, other: "Confusion") -> "Confusion":
        return Confusion(self.table + other.table)

    @property
    def counts(self) -> LabelCounts:
        """True positives, false positives and false negatives of each class."""
        right = np.diagonal(self.table)
        return LabelCounts(right, self.table.sum(0) - right, self.table.sum(1) - right)

    def scores(self) -> dict[str, float]:
        """Return ``f1``, ``accuracy``, ``precision`` and ``recall``; NaN without frames.

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
    """Return the name of a count that a site sends; names of classes have no ``>``."""
    return f"frames_{true}>{called}"


@dataclass(frozen=True)
class Called:
    """Calls of a model on a list of images.

    Attributes:
        entropy: mean over images, of the largest that there is: 0 = sure of everything, 1 = knows nothing.
        shares: of images in which each class is called, in the order of the channels.
    """

    entropy: float
    shares: tuple[float, ...]

    @property
    def classes(self) -> int:
        """Number of classes that are called in more than a few images."""
        return sum(share >= RARE for share in self.shares)

    @property
    def spread(self) -> float:
        """Entropy of the shares, 0 to 1, of the largest that there is: 1 = all classes are called equally often."""
        total = sum(self.shares)
        parts = [share / total for share in self.shares if share > 0]
        return -sum(part * math.log(part) for part in parts) / math.log(max(2, len(self.shares)))


def entropy(probabilities: Tensor, several: bool = False) -> float:
    """Return the entropy of one image's probabilities, the mean over its voxels, of the largest that there is: 0 to 1.

    Args:
        probabilities: (C, ...), which sum to 1 over C.
        several: classes may be there at once: each channel is a probability of its own.
    """
    values = probabilities.double().clamp(TINY, 1)
    if several:
        other = (1 - probabilities.double()).clamp(TINY, 1)
        return float(-(values * values.log() + other * other.log()).mean() / math.log(2))
    return float(-(values * values.log()).sum(dim=0).mean() / math.log(max(2, len(values))))


def classes_called(probabilities: Tensor, several: bool = False) -> Tensor:
    """Return which classes are called in one image, the likeliest, of a voxel likewise: (C,) bool.

    Args:
        probabilities, several: as of :func:`entropy`; of ``several`` each from 0.5 on.
    """
    if several:
        return (probabilities >= 0.5).reshape(len(probabilities), -1).any(dim=1).cpu()
    likeliest = probabilities.argmax(dim=0).flatten().unique()
    marked = torch.zeros(len(probabilities), dtype=torch.bool)
    marked[likeliest.cpu()] = True
    return marked


def called(images: Iterable[tuple[float, Tensor]]) -> Called:
    """Sum up the calls on all images.

    Args:
        images: of each what :func:`entropy` and :func:`classes_called` say; at least one.
    """
    entropies, marked = zip(*images, strict=True)
    shares = torch.stack([one.double() for one in marked]).mean(dim=0)
    return Called(sum(entropies) / len(entropies), tuple(shares.tolist()))


def probabilities(network: nn.Module, logits: Tensor) -> Tensor:
    """Return probabilities (B, C, ...) of logits: by ``network.probabilities`` where there is one, else by softmax."""
    convert: Callable[[Tensor], Tensor] | None = getattr(network, "probabilities", None)
    return convert(logits) if convert else logits.softmax(dim=1)


@torch.no_grad()
def called_by(network: nn.Module, infer: Callable[[Tensor], Any], batches: Iterable[Tensor]) -> Called | None:
    """Return the calls of a network; None where it says nothing of single images, as one that needs whole videos.

    Args:
        network: in its mode for inference.
        infer: the network itself, or what shows it large images by windows.
        batches: of images (B, C, ...), at least one, on the network's device.
    """
    calls = []
    for images in batches:
        logits = infer(images)
        if not isinstance(logits, Tensor) or logits.ndim < 2 or len(logits) != len(images) or logits.shape[1] < 2:
            return None
        values = probabilities(network, logits.float())
        several = bool(((values.sum(dim=1) - 1).abs() > TOLERANCE).any())
        calls += [(entropy(one, several), classes_called(one, several)) for one in values]
    return called(calls)


def objection(before: Called, after: Called) -> str:
    """Return why not to make a change, as the end of a sentence; empty where nothing speaks against it."""
    if after.classes <= 1 < before.classes:
        return f"the model then calls one class alone, where it called {before.classes} before"
    # A model that took nearly everything for one class was too sure: where it now tells classes apart, it is right
    # that it is less sure.
    less_sure = after.entropy > before.entropy + CLEARLY and after.spread <= before.spread
    if before.classes > 1 and less_sure:
        said = f"mean entropy {after.entropy:.2f} of 1, {before.entropy:.2f} before"
        return f"the model is then less sure ({said}) and spreads its calls over no more classes"
    return ""
