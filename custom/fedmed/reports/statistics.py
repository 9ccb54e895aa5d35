"""Significance of a difference between two arms."""

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import mannwhitneyu

from fedmed.errors import DataError

EXACT_UP_TO = 8  # values in the smaller sample; beyond it the normal approximation is as good


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
