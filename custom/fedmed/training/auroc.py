"""Area under the ROC curve of several classes, one against the rest, and intervals of it and of an accuracy.

The bootstrap needs weights of the cases, which MONAI's ``compute_roc_auc`` and scipy's ``mannwhitneyu`` lack; they
are also three to four times slower.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from ignite.engine import Engine, Events
from numpy.typing import ArrayLike

from fedmed.errors import DataError, FedMedError
from fedmed.training.calibration import Collected

RESAMPLES = 1000
CHUNK = 4_000_000  # resampled cases at a time; bounds the memory


def class_aurocs(probabilities: ArrayLike, labels: ArrayLike, weights: np.ndarray | None = None) -> np.ndarray:
    """AUROC of each class against the rest: the share of (case of the class, other case) pairs in order, ties by half.

    Args:
        probabilities: (n, C), higher for a more certain class.
        labels: (n,) int in [0, C).
        weights: (R, n) int, how often each case counts in each of R resamples; None = each once.

    Returns:
        float64 (C,), or (R, C) with ``weights``; NaN for a class without a case or without another's.

    Raises:
        FedMedError: shapes that do not fit.
    """
    values, truth = np.asarray(probabilities, np.float64), np.asarray(labels)
    if values.ndim != 2 or truth.shape != values.shape[:1]:
        raise FedMedError(f"AUROC: probabilities {values.shape} and labels {truth.shape}; use (n, C) and (n,)")
    counted = np.ones((1, len(truth))) if weights is None else weights
    aurocs = np.stack([_auroc(values[:, c], truth == c, counted) for c in range(values.shape[1])], axis=-1)
    return aurocs[0] if weights is None else aurocs


def macro_auroc(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean of :func:`class_aurocs` over classes that have cases; NaN with fewer than two such classes."""
    return float(macro_mean(class_aurocs(probabilities, labels)))


def macro_mean(aurocs: np.ndarray) -> np.ndarray:
    """Return the mean of (..., C) over the last axis without its NaN values; NaN where all are NaN."""
    known = np.isfinite(aurocs)
    total, count = np.where(known, aurocs, 0.0).sum(axis=-1), known.sum(axis=-1)
    return np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)


def macro_auroc_interval(
    probabilities: ArrayLike, labels: ArrayLike, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % percentile interval of :func:`macro_auroc` by the bootstrap over cases.

    A class that a resample misses is left out of that resample's mean; a resample of one class only is left out.

    Args:
        probabilities, labels: as in :func:`class_aurocs`; NaN where the AUROC is not defined.
        resamples, seed: of the draws of n cases with replacement.
    """
    values, truth = np.asarray(probabilities, np.float64), np.asarray(labels)
    rng, n = np.random.default_rng(seed), len(truth)
    means: list[np.ndarray] = []
    chunk = max(1, CHUNK // max(n, 1))
    for done in range(0, resamples, chunk):
        draws = rng.integers(n, size=(min(chunk, resamples - done), n))
        weights = np.stack([np.bincount(draw, minlength=n) for draw in draws])
        means.append(macro_mean(class_aurocs(values, truth, weights)))
    known = np.concatenate(means)
    known = known[np.isfinite(known)]
    low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (np.nan, np.nan)
    return float(low), float(high)


def accuracy_interval(right: int, cases: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, by Wilson's score; ``cases`` at least 1."""
    from scipy.stats import binomtest  # takes a second to load

    interval = binomtest(right, cases).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


class MacroAuroc:
    """Macro one-vs-rest AUROC of an evaluator's run, as its key metric or an additional one.

    Classes without a case are left out of the mean. ``pred`` of the output are logits.

    Args:
        classes: names of the classes, for errors.
        required: whether fewer than two classes in the list are an error; otherwise the metric is NaN.

    Raises:
        DataError: at the end of a run: fewer than two classes, NaN or infinite logits.
    """

    def __init__(self, classes: Sequence[str] | None = None, required: bool = True) -> None:
        self.classes, self.required, self.collected = classes, required, Collected()

    def attach(self, engine: Engine, name: str) -> None:
        """Add to an evaluator; the score is ``engine.state.metrics[name]``."""
        self.collected.attach(engine)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self._finish, name)

    def _finish(self, engine: Any, name: str) -> None:
        labels = self.collected.labels
        value = macro_auroc(self.collected.probabilities(engine.network), labels)
        if math.isnan(value) and self.required:
            names = [str(label) if self.classes is None else self.classes[label] for label in labels.unique().tolist()]
            raise DataError(
                f"{name}: the {len(labels)} cases are all of the class '{', '.join(names)}', and an AUROC needs two; "
                "list cases of another class too, under 'validation' in the site's datalist"
            )
        engine.state.metrics[name] = value


def _auroc(values: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return (R,) from values (n,), bool (n,) and weights (R, n)."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(values[order]) != 0])  # of each run of equal values
    sorted_ = weights[:, order].astype(np.float64)
    positives = np.add.reduceat(sorted_ * positive[order], starts, axis=1)
    negatives = np.add.reduceat(sorted_ * ~positive[order], starts, axis=1)
    below = np.cumsum(negatives, axis=1) - negatives
    pairs = positives.sum(axis=1) * negatives.sum(axis=1)
    in_order = (positives * (below + negatives / 2)).sum(axis=1)
    return np.divide(in_order, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
