"""One arm against another at one site, case by case."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from fedmed.errors import DataError
from fedmed.experiments.scores import Score
from fedmed.reports.statistics import DECIMALS, holm, rank_biserial, wilcoxon_signed_rank

SEEDS_FOR_P = 5  # fewer seeds have no p over seeds
SEEDS_FOR_VERDICT = 6  # with fewer, no two-sided p over seeds can be below 0.05: that of five is 2/32 at least


class OverSeeds:
    """What the seeds' own differences say; for a comparison of whatever kind of scores."""

    seed_differences: tuple[float, ...]

    @property
    def n_seeds(self) -> int:
        return len(self.seed_differences)

    @property
    def seeds_agreeing(self) -> int:
        """Seeds whose mean difference has the claimed sign."""
        return sum(difference > 0 for difference in self.seed_differences)

    @property
    def seeds_against(self) -> int:
        return sum(difference < 0 for difference in self.seed_differences)


@dataclass(frozen=True)
class Comparison(OverSeeds):
    """Paired difference of two arms' Dice at one site: ``better`` - ``worse``.

    Attributes:
        better, worse: arms, named by what is claimed.
        site, list, model: which Dice, as in :class:`fedmed.experiments.scores.Score`.
        difference: mean over cases and seeds, -1..1; above 0 as claimed.
        n_cases: cases of each seed; 1 for the list ``valid``, which has one mean a run.
        p_cases: two-sided Wilcoxon over cases, each one's Dice averaged over the seeds first, so that seeds do not
            multiply cases; None for the list ``valid``.
        p_seeds: the same over the seeds' means; None below five seeds.
        effect: matched-pairs rank-biserial correlation over cases (list ``valid``: over seeds), -1..1.
        seed_differences: mean difference of each seed.
    """

    better: str
    worse: str
    site: str
    list: str
    model: str
    difference: float
    n_cases: int
    p_cases: float | None
    p_seeds: float | None
    effect: float
    seed_differences: tuple[float, ...]

    @property
    def p(self) -> float | None:
        """The p that a verdict rests on: over cases, or over enough seeds where there are no cases."""
        if self.list == "test":
            return self.p_cases
        return self.p_seeds if self.n_seeds >= SEEDS_FOR_VERDICT else None


def compare(
    scores: Sequence[Score], better: str, worse: str, site: str, list: str = "test", model: str = "last"
) -> Comparison:
    """Compare two arms at a site over the same cases and seeds.

    Raises:
        DataError: an arm has no such scores, or the arms or an arm's seeds have different cases; names the first one.
    """
    high, low = (_dice(scores, arm, site, list, model) for arm in (better, worse))
    for arm, dice in ((better, high), (worse, low)):
        if not dice:
            raise DataError(
                f"arm '{arm}' has no {list} scores of the {model} model at site '{site}'; "
                "run it, or take it out of the comparison"
            )
    _check_pairs(high, low, better, worse, site)
    seeds, cases = sorted(high), sorted(next(iter(high.values())))
    a, b = (np.array([[arm[seed][case] for case in cases] for seed in seeds]) for arm in (high, low))
    over_cases, over_seeds = (a.mean(0), b.mean(0)), (a.mean(1), b.mean(1))
    return Comparison(
        better=better,
        worse=worse,
        site=site,
        list=list,
        model=model,
        difference=float(np.round((a - b).mean(), DECIMALS)),
        n_cases=len(cases),
        p_cases=wilcoxon_signed_rank(*over_cases) if list == "test" else None,
        p_seeds=wilcoxon_signed_rank(*over_seeds) if len(seeds) >= SEEDS_FOR_P else None,
        effect=rank_biserial(*(over_cases if list == "test" else over_seeds)),
        seed_differences=tuple(float(x) for x in np.round((a - b).mean(1), DECIMALS)),
    )


def adjusted(comparisons: Sequence[Comparison]) -> list[float | None]:
    """Holm-adjusted p of each comparison, over all of a table's comparisons that have one."""
    tested = [i for i, comparison in enumerate(comparisons) if comparison.p is not None]
    values = dict(zip(tested, holm([comparisons[i].p for i in tested]), strict=True))
    return [values.get(i) for i in range(len(comparisons))]


def seed_means(scores: Sequence[Score], arm: str, site: str, list: str, model: str) -> dict[int, float]:
    """Seed -> mean Dice over its cases; empty without such scores."""
    found = _dice(scores, arm, site, list, model)
    return {seed: fmean(found[seed].values()) for seed in sorted(found)}


def _dice(scores: Sequence[Score], arm: str, site: str, list: str, model: str) -> dict[int, dict[str, float]]:
    """Seed -> case -> Dice; empty without such scores."""
    found: dict[int, dict[str, float]] = {}
    for score in scores:
        if (score.arm, score.site, score.list, score.model) == (arm, site, list, model):
            found.setdefault(score.seed, {})[score.case] = score.dice
    return found


def _check_pairs(high: dict, low: dict, better: str, worse: str, site: str) -> None:
    """Both arms have the same seeds, and the same cases in every one of them."""
    if unpaired := sorted(set(high) ^ set(low)):
        arm = worse if unpaired[0] in high else better
        raise DataError(f"arm '{arm}' has no scores of seed {unpaired[0]} at site '{site}'; run it with the same seeds")
    cases = {case for arm in (high, low) for dice in arm.values() for case in dice}
    for arm, dice in ((better, high), (worse, low)):
        for seed in sorted(dice):
            if missing := sorted(cases - set(dice[seed])):
                raise DataError(
                    f"arm '{arm}', site '{site}', seed {seed} lacks case '{missing[0]}', which another run has; "
                    "run both on the same test list"
                )
