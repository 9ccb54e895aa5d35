"""One arm against another, paired over seeds and test images."""

from dataclasses import dataclass

import numpy as np

from fedmed.errors import DataError
from fedmed.experiments.comparison import OverSeeds
from fedmed.experiments.pretraining.metrics import interval
from fedmed.experiments.pretraining.scores import Scores, Setting
from fedmed.reports.statistics import DECIMALS


@dataclass(frozen=True)
class Comparison(OverSeeds):
    """Difference of two arms' scores in one setting, ``better`` - ``worse``.

    Attributes:
        better, worse: arms, named by what is claimed.
        setting, metric: what is compared.
        difference: mean over seeds; above 0 as claimed.
        low, high: 95 % interval over patients, of the mean over seeds.
        p: two-sided, by resampling patients: how often the difference changes its sign.
        seed_differences: of each seed.
    """

    better: str
    worse: str
    setting: Setting
    metric: str
    difference: float
    low: float
    high: float
    p: float
    seed_differences: tuple[float, ...]


def compare(scores: Scores, better: str, worse: str, setting: Setting, metric: str) -> Comparison:
    """Compare two arms on the same resamples of patients and over the same seeds.

    The resamples are those of the test images alone: they speak of other patients. What another training would change
    is seen in the seeds.

    Raises:
        DataError: an arm was not run in this setting, or the two have different seeds.
    """
    for arm in (better, worse):
        if not scores.seeds(arm, setting):
            raise DataError(f"arm '{arm}' has no result in {setting}; run it, or take it out of the comparison")
    high, low = (scores.resampled(arm, setting, metric) for arm in (better, worse))
    if sorted(high) != sorted(low):
        raise DataError(f"'{better}' has the seeds {sorted(high)}, '{worse}' {sorted(low)}; run both with the same")
    differences = np.round([high[seed] - low[seed] for seed in sorted(high)], DECIMALS)  # (seeds, 1 + B)
    mean = differences.mean(0)
    resampled = mean[1:][np.isfinite(mean[1:])]
    return Comparison(
        better=better,
        worse=worse,
        setting=setting,
        metric=metric,
        difference=float(mean[0]),
        low=interval(resampled)[0],
        high=interval(resampled)[1],
        p=two_sided(resampled),
        seed_differences=tuple(float(x) for x in differences[:, 0]),
    )


def two_sided(resampled: np.ndarray) -> float:
    """Twice the smaller tail at 0, ties in both; never 0, as a finite number of resamples cannot show that."""
    tails = [(np.count_nonzero(tail) + 1) / (len(resampled) + 1) for tail in (resampled <= 0, resampled >= 0)]
    return float(min(1.0, 2 * min(tails)))
