"""Significance and size of a difference between two arms."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import mannwhitneyu, rankdata, wilcoxon

from fedmed.errors import DataError

EXACT_UP_TO = 8  # values in the smaller sample; beyond it the normal approximation is as good
DECIMALS = 12  # what is less than that is rounding: equal Dice values summed in another order


@dataclass(frozen=True)
class MannWhitney:
    """Result of a one-sided Mann-Whitney U test; a table must name the method.

    Args:
        u: pairs with x > y, ties counting one half.
        p: probability of such a small U, or a smaller one, if there were no difference.
        method: ``exact`` or ``asymptotic`` (normal approximation with correction for ties and continuity).
    """

    u: float
    p: float
    method: str


def mann_whitney_less(x: Sequence[float], y: Sequence[float]) -> MannWhitney:
    """Test whether x is stochastically less than y.

    Exact when there are no ties and at most 8 values on a side; with ties the exact table does not hold.

    Raises:
        DataError: a sample is empty or has a NaN.
    """
    values = [*x, *y]
    if not len(x) or not len(y) or any(value != value for value in values):
        raise DataError(f"Mann-Whitney test of {len(x)} and {len(y)} values; both need at least one, and no NaN")
    exact = len(set(values)) == len(values) and min(len(x), len(y)) <= EXACT_UP_TO
    method = "exact" if exact else "asymptotic"
    result = mannwhitneyu(x, y, alternative="less", method=method)
    return MannWhitney(float(result.statistic), float(result.pvalue), method)


def wilcoxon_signed_rank(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p of Wilcoxon's signed-rank test of paired values; 1 for fewer than two pairs or no difference at all.

    Pairs without a difference are ranked with the others and then take no side (Pratt 1959): leaving them out, as
    Wilcoxon did, would call two arms more different the more cases they score alike. Exact up to 50 pairs, and with
    ties or zeros up to 13; beyond, the normal approximation with corrections for ties and continuity.

    Raises:
        DataError: samples of different length, or a NaN.
    """
    differences = paired_differences(a, b)
    if len(differences) < 2 or not differences.any():
        return 1.0
    return float(wilcoxon(differences, zero_method="pratt", correction=True, method="auto").pvalue)


def rank_biserial(a: Sequence[float], b: Sequence[float]) -> float:
    """Matched-pairs rank-biserial correlation (Kerby 2014): ranks of a > b less those of a < b, over all ranks.

    Returns:
        -1..1; 1 where every a is above its b, 0 without a difference. Pairs alike count among all ranks.

    Raises:
        DataError: samples of different length, or a NaN.
    """
    differences = paired_differences(a, b)
    ranks = rankdata(np.abs(differences))
    return float((np.sign(differences) * ranks).sum() / ranks.sum()) if len(ranks) else 0.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment (Holm 1979), in the order of the input.

    The k-th smallest of m values is multiplied by m - k + 1, is at least its predecessor and at most 1.

    Raises:
        DataError: a value that is no probability.
    """
    if any(not 0 <= p <= 1 for p in p_values):
        raise DataError(f"Holm's adjustment of {list(p_values)}; each must be a probability")
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted


def paired_differences(a: Sequence[float], b: Sequence[float]) -> np.ndarray:
    """a - b of paired values, (n,), rounded so that equal values differ by exactly 0.

    Raises:
        DataError: samples of different length, or a NaN.
    """
    if len(a) != len(b) or not np.isfinite([*a, *b]).all():
        raise DataError(f"paired test of {len(a)} and {len(b)} values; both need the same cases, and no NaN")
    return np.round(np.asarray(a, dtype=float) - np.asarray(b, dtype=float), DECIMALS)
