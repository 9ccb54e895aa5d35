"""Accuracy and AUROC of many resamples at once: a resample is a row of weights, how often each case was drawn."""

import numpy as np
from numpy.typing import NDArray

from fedmed.engines.auroc import class_aurocs, macro_mean
from fedmed.errors import DataError

Floats = NDArray[np.float64]
METRICS = ("accuracy", "auroc")


def score(metric: str, labels: NDArray[np.int64], probabilities: Floats, weights: Floats | None = None) -> Floats:
    """One metric of every resample.

    Args:
        metric: ``accuracy``, or ``auroc``: the mean of one class against the rest over the classes.
        labels: (n,), 0 .. C-1.
        probabilities: (n, C), finite.
        weights: (B, n), 0 or more; None = every case once.

    Returns:
        (B,) in 0..1. A class that a resample has no case of, or nothing else than, is left out of its AUROC;
        NaN where that leaves none.

    Raises:
        DataError: shapes that do not fit, a label beyond the classes, or a probability that is no number.
    """
    weights = np.ones((1, len(labels))) if weights is None else weights
    _check(labels, probabilities, weights)
    if metric == "accuracy":
        correct = (probabilities.argmax(1) == labels).astype(float)
        return weights @ correct / weights.sum(1)
    return macro_mean(class_aurocs(probabilities, labels, weights))


def resamples(patients: NDArray, count: int, seed: int) -> Floats:
    """Weights of bootstrap resamples of patients: all of a patient's images are drawn together.

    Args:
        patients: (n,), whose image each case is.
        count: resamples.
        seed: the same seed draws the same, so that two arms are compared on equal resamples.

    Returns:
        (count + 1, n); the first row is the sample itself.
    """
    names, of = np.unique(patients, return_inverse=True)
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(len(names), np.full(len(names), 1 / len(names)), size=count)
    return np.vstack([np.ones(len(patients)), drawn[:, of]]).astype(float)


def interval(values: Floats, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of resampled values, those without a number left out."""
    tail = 100 * (1 - level) / 2
    low, high = np.nanpercentile(values, [tail, 100 - tail])
    return float(low), float(high)


def _check(labels: NDArray, probabilities: Floats, weights: Floats) -> None:
    n = len(labels)
    if probabilities.ndim != 2 or len(probabilities) != n or weights.shape[1:] != (n,) or not n:
        shapes = f"labels {labels.shape}, probabilities {probabilities.shape}, weights {weights.shape}"
        raise DataError(f"{shapes}: they must be (n,), (n, C) and (B, n) of the same cases")
    if labels.min() < 0 or labels.max() >= probabilities.shape[1]:
        raise DataError(f"labels {labels.min()}..{labels.max()} do not fit {probabilities.shape[1]} classes")
    if not np.isfinite(probabilities).all():
        raise DataError("a probability is no finite number; did the training diverge?")
