"""One list of cases, scored by two models: both scores, and their difference with an interval over patients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from scipy.stats import norm

from fedmed.reports.run_files import column
from fedmed.training.jackknife import estimate, leave_one_out

PATIENT = "patient"
Scorer = Callable[[pd.DataFrame, np.ndarray], np.ndarray]  # cases (n rows), weights (R, n) -> (R,), NaN for no score


@dataclass(frozen=True)
class PairedScores:
    """Scores of the cases that both models were tested on.

    Attributes:
        n_cases, n_patients: how many these are, and of how many patients.
        ours, theirs: their score by each model.
        low, high: 95 % interval of ``ours - theirs``; None where the patients cannot tell, such as fewer than four.
        error: standard error of the difference.
    """

    n_cases: int
    n_patients: int
    ours: float
    theirs: float
    low: float | None
    high: float | None
    error: float | None


def paired_scores(
    ours: pd.DataFrame,
    theirs: pd.DataFrame,
    needed: Sequence[str],
    score: Scorer,
    also: Sequence[pd.DataFrame] = (),
) -> PairedScores | None:
    """Compare two models case by case; None where they have no case in common.

    The interval is that of :mod:`fedmed.training.jackknife`: each patient is left out once, with all cases and from
    both models.

    Args:
        ours, theirs: two tables of cases, as text, with the columns ``case`` and ``patient``.
        needed: columns without whose numbers a case has no score.
        score: of cases, each as often as its weight says.
        also: such tables of other models; a case that one of them did not score, or with another label, does not count.
    """
    first, second = _known(ours, needed), _known(theirs, needed)
    for other in also:
        first, _ = _both(first, _known(other, needed))
    first, second = _both(first, second)
    if first.empty:
        return None
    patients = first[PATIENT].to_numpy(str)
    a, b = (leave_one_out(partial(score, own), patients) for own in (first, second))
    found = estimate(a - b)
    (low, high), error = ((None, None), None) if found is None else (found.interval(), found.error)
    return PairedScores(len(first), len(a) - 1, float(a[0]), float(b[0]), low, high, error)


def patients_to_tell(error: float, patients: int, difference: float) -> float:
    """How many patients would show a difference in four of five studies, where they spread as these do.

    A two-sided test at 5 % with a power of 80 %, by the normal distribution: ((1.96 + 0.84) s / difference)².

    Args:
        error: standard error with so many ``patients``, s / √patients.
        difference: to be shown; not 0.
    """
    return float(((norm.ppf(0.975) + norm.ppf(0.8)) * error / difference) ** 2 * patients)


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
