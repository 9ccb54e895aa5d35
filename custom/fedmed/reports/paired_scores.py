"""One list of cases, scored by two models: both scores, and their difference with an interval over patients."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import DegenerateDataWarning, bootstrap, norm, t

from fedmed.reports.run_files import column

RESAMPLES = 5000
FEWEST = 4  # patients of whom there is an interval
BATCH = 4_000_000  # resampled cases at a time; bounds the memory
PATIENT = "patient"
Scorer = Callable[[pd.DataFrame, np.ndarray], np.ndarray]  # cases (n rows), weights (R, n) -> (R,), NaN for no score


@dataclass(frozen=True)
class PairedScores:
    """Scores of the cases that both models were tested on.

    Attributes:
        n_cases, n_patients: how many these are, and of how many patients.
        ours, theirs: their score by each model.
        low, high: 95 % interval of ``ours - theirs``; None with fewer than four patients.
    """

    n_cases: int
    n_patients: int
    ours: float
    theirs: float
    low: float | None
    high: float | None


def paired_scores(
    ours: pd.DataFrame, theirs: pd.DataFrame, needed: Sequence[str], score: Scorer, seed: int = 0
) -> PairedScores | None:
    """Compare two models case by case; None where they have no case in common.

    The interval is the bootstrap's: patients are drawn with replacement, all cases of one together and the same for
    both models, 5000 times. Its percentiles lie further out the fewer patients there are, since plain ones are too
    narrow then ("expanded percentile interval", Hesterberg 2015, The American Statistician 69, 371-386).

    Args:
        ours, theirs: two tables of cases, as text, with the columns ``case`` and ``patient``.
        needed: columns without whose numbers a case has no score.
        score: of cases, each as often as its weight says.
        seed: of the draws.
    """
    first, second = _both(_known(ours, needed), _known(theirs, needed))
    if first.empty:
        return None
    names, of = np.unique(first[PATIENT].to_numpy(str), return_inverse=True)

    def difference(drawn: np.ndarray, axis: int = -1) -> np.ndarray:
        rows = drawn.reshape(-1, len(names))
        weights = np.stack([np.bincount(row, minlength=len(names)) for row in rows])[:, of]
        return (score(first, weights) - score(second, weights)).reshape(drawn.shape[:-1])

    low, high = interval(difference, len(names), BATCH // len(first) or 1, seed)
    once = np.ones((1, len(first)), int)
    return PairedScores(len(first), len(names), float(score(first, once)[0]), float(score(second, once)[0]), low, high)


def patients_to_tell(low: float, high: float, patients: int, difference: float) -> float:
    """How many patients would show a difference in four of five studies, where they spread as these do.

    A two-sided test at 5 % with a power of 80 %, by the normal distribution: ((1.96 + 0.84) s / difference)², s being
    the standard deviation of which the interval was made.

    Args:
        low, high: interval of :func:`interval`, of so many ``patients``, at least :data:`FEWEST`.
        difference: to be shown; not 0.
    """
    spread = (high - low) / 2 * math.sqrt(patients) / t.ppf(0.975, patients - 1)
    return float(((norm.ppf(0.975) + norm.ppf(0.8)) * spread / difference) ** 2)


def interval(
    statistic: Callable[..., np.ndarray], units: int, batch: int, seed: int
) -> tuple[float, float] | tuple[None, None]:
    """95 % interval of a statistic of places of ``units`` units (…, units) -> (…); resamples without one are left out.

    Neither end with fewer than four units, or where no resample has the statistic.
    """
    if units < FEWEST:
        return None, None
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)  # of the plain percentiles, which are not used
        drawn = bootstrap(
            (np.arange(units),), statistic, n_resamples=RESAMPLES, batch=batch, vectorized=True, method="percentile",
            rng=rng,
        ).bootstrap_distribution  # fmt: skip
    known = drawn[np.isfinite(drawn)]
    if not len(known):
        return None, None
    tail = norm.cdf(-np.sqrt(units / (units - 1)) * t.ppf(0.975, units - 1))
    low, high = np.quantile(known, [tail, 1 - tail])
    return float(low), float(high)


def _known(cases: pd.DataFrame, needed: Sequence[str]) -> pd.DataFrame:
    """Cases that have a score, by name; files of one name in several folders are several cases, by their order."""
    if cases.empty:
        return pd.DataFrame({PATIENT: [], "label": []})
    finite = np.all([np.isfinite(column(cases, name)) for name in needed], axis=0)
    again = cases.groupby("case").cumcount().astype(str)
    return cases.set_index([cases["case"], again])[finite]


def _both(first: pd.DataFrame, second: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The cases of both, in the order of the first, without those whose label is another one in the second."""
    same = first.index.intersection(second.index, sort=False)
    first, second = first.loc[same], second.loc[same]
    if "label" in first and "label" in second:
        alike = (first["label"] == second["label"]).to_numpy(bool)
        first, second = first[alike], second[alike]
    return first, second
