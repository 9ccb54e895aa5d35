"""Significance and size of a difference between two arms on the same cases.

Values are paired but for the test of Mann and Whitney: a sample of another length, or a NaN, is a DataError.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import mannwhitneyu, rankdata, wilcoxon

from fedmed.errors import DataError
from fedmed.reports import alone

ALL_SIGNS_UP_TO = 13  # pairs, with ties or zeros: 8,192 ways to give them signs
EXACT_UP_TO = 8  # values in the smaller sample; beyond it the normal approximation is as good
DECIMALS = 12  # what is less than that is rounding: equal scores summed in another order


def wilcoxon_signed_rank(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float:
    """Two-sided p of Wilcoxon's signed-rank test; 1 for fewer than two pairs or no difference at all.

    Pairs without a difference are ranked with the others and then take no side (Pratt 1959): leaving them out, as
    Wilcoxon did, would call two arms more different the more cases they score alike. Exact up to 50 pairs, and with
    ties or zeros up to 13; beyond, the normal approximation with corrections for ties and continuity.
    """
    differences = _differences(a, b)
    if len(differences) < 2 or not differences.any():
        return 1.0
    tied = not differences.all() or len(set(np.abs(differences))) < len(differences)
    if tied and len(differences) <= ALL_SIGNS_UP_TO:
        return _p_of_all_signs(differences)
    return float(wilcoxon(differences, zero_method="pratt", correction=True, method="auto").pvalue)


def _p_of_all_signs(differences: np.ndarray) -> float:
    """The same p by all signs that these (n,) differences could have, as SciPy does, without its loop over each one."""
    ranks = np.where(differences == 0, 0, rankdata(np.abs(differences)))
    positive = np.arange(2 ** len(ranks))[:, None] >> np.arange(len(ranks)) & 1
    sums, observed = positive @ ranks, ranks[differences > 0].sum()
    return float(min(1.0, 2 * min((sums <= observed).mean(), (sums >= observed).mean())))


def least_p(pairs: int) -> float:
    """The smallest two-sided p that so many pairs can have: all of one sign."""
    return float(min(1.0, 2.0 ** (1 - pairs)))


def rank_biserial(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float:
    """Matched-pairs rank-biserial correlation (Kerby 2014): ranks of a > b less those of a < b, over all ranks.

    Returns:
        -1..1; 1 where every a is above its b, 0 without a difference. Pairs alike count among all ranks.
    """
    differences = _differences(a, b)
    ranks = rankdata(np.abs(differences))
    return float((np.sign(differences) * ranks).sum() / ranks.sum()) if len(ranks) else 0.0


def mann_whitney_less(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Test whether x is stochastically less than y, by the one-sided test of Mann and Whitney, for values not paired.

    Exact without ties and with at most 8 values on a side; else the normal approximation, corrected for ties and
    continuity: with ties the exact table does not hold.

    Returns:
        p, and the rank-biserial correlation, -1..1: 1 where every x is below every y.

    Raises:
        DataError: a sample is empty or has a NaN.
    """
    values = np.round([*x, *y], DECIMALS)
    if not len(x) or not len(y) or not np.isfinite(values).all():
        raise DataError(f"Mann-Whitney test of {len(x)} and {len(y)} values; both need at least one, and no NaN")
    exact = len(set(values)) == len(values) and min(len(x), len(y)) <= EXACT_UP_TO
    test = mannwhitneyu(
        values[: len(x)], values[len(x) :], alternative="less", method="exact" if exact else "asymptotic"
    )
    return float(test.pvalue), float(1 - 2 * test.statistic / (len(x) * len(y)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment (Holm 1979), in the order of the input.

    Raises:
        DataError: a value that is not a probability.
    """
    if any(not 0 <= p <= 1 for p in p_values):
        raise DataError(f"Holm's adjustment of {list(p_values)}; each must be a probability")
    return alone.holm(p_values)


def _differences(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> np.ndarray:
    """a - b, (n,), rounded so that equal values differ by exactly 0."""
    if len(a) != len(b) or not np.isfinite([*a, *b]).all():
        raise DataError(f"paired test of {len(a)} and {len(b)} values; both need the same cases, and no NaN")
    return np.round(np.asarray(a, dtype=float) - np.asarray(b, dtype=float), DECIMALS)
