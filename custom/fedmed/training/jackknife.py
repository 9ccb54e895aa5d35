"""Test and interval of a score over few units, such as patients or videos, in strata, such as sites.

The jackknife (Miller 1974, Biometrika 61, 1-15): how much the score moves as each unit is left out says how sure it is,
whatever the score is made of; of a mean, this is Student's t test. Units of a stratum are compared with one another
alone, so what differs between sites is not taken for chance. A percentile bootstrap calls far more than 5 % of
differences found where a site has two to five videos: its variance is short by (n - 1) / n in every site, and it has
no t. Two cautions keep the 5 % at such sizes:

- **Degrees of freedom**: the smaller of those of the spreads seen (Satterthwaite 1946, Biometrics Bulletin 2, 110-114)
  and of equal spreads (Bell & McCaffrey 2002, Survey Methodology 28, 169-181). Two videos that happen to be alike do
  not make a site sure.
- **Skewness**: of the t statistic as it is and after Hall's transformation (Hall 1992, J. R. Statist. Soc. B 54,
  221-228), the one that is less sure counts. The interval reaches further on the side of the longer tail.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy  # loads its parts when they are used; Student's t of scipy.stats would take a second
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
LEVEL = 0.95
FEWEST_FREE = 3  # units beyond the first of each stratum: four patients of one site
CELLS = 4_000_000  # weights at a time; bounds the memory
FLAT = 1e-9  # a smaller standard error is rounding


@dataclass(frozen=True)
class Estimate:
    """A score, and how far chance in the draw of its units may have moved it.

    Attributes:
        value: the score of all units.
        error: its standard error; 0 only where the value is 0 too: two models that do the same.
        freedom: degrees of freedom of the error.
        skewness: of the distribution of the value, in which it falls with the root of the number of units.
    """

    value: float
    error: float
    freedom: float
    skewness: float = 0.0

    def p_above(self) -> float:
        """Return the one-sided p that the value is above 0."""
        return float(max(scipy.special.stdtr(self.freedom, -each) for each in self._statistics()))

    def p_differs(self) -> float:
        """Return the two-sided p that the value is not 0; below 0.05 exactly where the 95 % interval leaves 0 out."""
        below = max(scipy.special.stdtr(self.freedom, each) for each in self._statistics())
        return float(min(1.0, 2 * min(self.p_above(), below)))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return both ends. That of 0.9 begins above 0 exactly where :meth:`p_above` is below 0.05."""
        reach = float(scipy.special.stdtrit(self.freedom, (1 + level) / 2))
        low, high = max(reach, self._untransformed(reach)), min(-reach, self._untransformed(-reach))
        return self.value - self.error * low, self.value - self.error * high

    def _statistics(self) -> tuple[float, float]:
        at, k = (self.value / self.error if self.error else 0.0), self.skewness
        return at, at + k * at**2 / 3 + k**2 * at**3 / 27 + k / 6

    def _untransformed(self, at: float) -> float:
        """Inverse of Hall's transformation."""
        k = self.skewness
        return at if abs(k) < FLAT else float(3 / k * (np.cbrt(1 + k * (at - k / 6)) - 1))


def leave_one_out(score: Callable[[Floats], Floats], units: ArrayLike) -> Floats:
    """Return a score of cases, and the same without each unit's: (1 + N,) of N units in the order of their names.

    Args:
        score: weights (R, n) of the cases, 1 or 0 -> (R,); NaN where such cases have no score.
        units: (n,), whose each case is.
    """
    names, of = np.unique(np.asarray(units), return_inverse=True)
    left_out = np.arange(-1, len(names))  # -1: none
    rows = max(1, CELLS // len(of))
    blocks = [left_out[start : start + rows, None] for start in range(0, len(left_out), rows)]
    with np.errstate(divide="ignore", invalid="ignore"):  # without its only unit a score is not defined
        return np.concatenate([score((of != block).astype(float)) for block in blocks])


def estimate(values: ArrayLike, strata: ArrayLike | None = None) -> Estimate | None:
    """Estimate the error of a score of all units from the scores without each unit.

    Args:
        values: (1 + N,), the score of all units, then without each, as of :func:`leave_one_out`.
        strata: (N,), the stratum of each unit, all of them counting alike; None = one.

    Returns:
        None where the units cannot tell: there are fewer than three beyond the first of each stratum, or a stratum has
        but one; a score is not defined without some unit; or each says exactly the same, and not 0.
    """
    scores = np.asarray(values, float)
    value, without = float(scores[0]), scores[1:]
    names = np.zeros(len(without)) if strata is None else np.asarray(strata)
    _, of, sizes = np.unique(names, return_inverse=True, return_counts=True)
    if len(without) - len(sizes) < FEWEST_FREE or sizes.min() < 2 or not np.isfinite(scores).all():
        return None
    # What each unit adds beside the others of its stratum: of a mean, its distance from that of the stratum.
    apart = (sizes[of] - 1) * ((np.bincount(of, without) / sizes)[of] - without)
    variances = np.bincount(of, apart**2) / (sizes * (sizes - 1))
    error = math.sqrt(variances.sum())
    if error < FLAT:
        return None if abs(value) > FLAT else Estimate(0.0, 0.0, float(len(without) - len(sizes)))
    third = np.bincount(of, apart**3) / (sizes * (sizes - 1) * np.maximum(sizes - 2, 1))  # 0 of two units
    freedom = min(_freedom(variances, sizes), _freedom(1 / sizes, sizes))
    return Estimate(value, error, freedom, float(third.sum() / error**3))


def _freedom(variances: Floats, sizes: NDArray[np.intp]) -> float:
    """Return Satterthwaite's degrees of freedom of the sum of the variances of the strata."""
    return float(variances.sum() ** 2 / (variances**2 / (sizes - 1)).sum())
