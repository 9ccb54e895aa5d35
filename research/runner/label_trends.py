"""Claims about numbers of several labels: rows that are alike, what goes with what, and how rounds go."""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field
from scipy.stats import spearmanr

from research.runner.experiment_data import Positive
from research.runner.label_claims import compare_labels
from research.runner.label_scores import ALTRUISTIC, EGOISTIC, VIEWS, LabelScores
from research.runner.round_claims import RoundClaim, RoundHistory, outcome_of, thirds
from research.runner.score_kinds import Floats
from research.runner.table_claim import ALPHA, ClaimFinding, Evidence, TableClaim
from research.runner.words_of_tables import probability, signed

SEED_RULE = """\
Claims about numbers hold if they do in every seed, or where they speak of a test or a distance, in the mean over the
seeds; ✗ if in no seed.
"""

Looked = tuple[str, str, Iterable[Any]]  # of what, the numbers in words, and what must be true, such as of every seed


class SeedClaim(TableClaim):
    """Base of what some rows show without a test."""

    rule: ClassVar[str] = SEED_RULE

    rows: Annotated[list[str], Field(min_length=1)]

    def uses(self) -> Mapping[str, Collection[str]]:
        return {"row": [row for row in self.rows if row not in VIEWS]}

    def needed(self) -> Sequence[str]:
        """Rows without which there is nothing to look at."""
        return self.rows

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        if not evidence.labels.have(self.needed()):
            return []
        return [
            ClaimFinding("Numbers", (("of", what), ("found", words)), found=outcome_of(list(map(bool, true))))
            for what, words, true in self.look(evidence.labels)
        ]

    @abstractmethod
    def look(self, scores: LabelScores) -> Sequence[Looked]:
        """What was looked at, part by part."""


class NotApart(SeedClaim):
    """No row differs from ``than``: neither test finds a difference either way, before any adjustment."""

    than: str

    def uses(self) -> Mapping[str, Collection[str]]:
        return {"row": [*self.rows, self.than]}

    def needed(self) -> Sequence[str]:
        return [*self.rows, self.than]

    def look(self, scores: LabelScores) -> Sequence[Looked]:
        found = []
        for row in self.rows:
            p = [one.p for pair in ((row, self.than), (self.than, row)) for one in compare_labels(scores, *pair)]
            known = [value for value in p if value is not None]
            words = ", ".join(map(probability, p))
            names = f"p that {row} is above {self.than}, then below it (Mann–Whitney, jackknife over videos)"
            apart, told = any(value < ALPHA for value in known), len(known) == len(p) > 0
            found.append((names, words, [not apart] if apart or told else []))
        return found


class CloseTogether(SeedClaim):
    """The means of the rows over sites and labels are at most so far apart, in the mean over the seeds."""

    within: Positive

    def look(self, scores: LabelScores) -> Sequence[Looked]:
        found = []
        for variant in scores.variants:
            means = {row: _mean(scores, row, variant).mean() for row in self.rows}
            apart = [abs(means[a] - means[b]) for a, b in combinations(self.rows, 2)]
            words = ", ".join(f"{row} {mean:.3f}" for row, mean in means.items())
            found.append((variant, f"{words}; at most {max(apart):.3f} apart", [max(apart) <= self.within]))
        return found


class LargerIsOwner(SeedClaim):
    """A site's own model is better at home than everywhere, the more so with the last variant: the larger network."""

    rows: list[str] = [ALTRUISTIC, EGOISTIC]

    def look(self, scores: LabelScores) -> Sequence[Looked]:
        gaps = {name: _mean(scores, EGOISTIC, name) - _mean(scores, ALTRUISTIC, name) for name in scores.variants}
        found: list[Looked] = [
            (f"{EGOISTIC} − {ALTRUISTIC}, {name}", _seeds(gap), gap > 0) for name, gap in gaps.items()
        ]
        first, last = next(iter(gaps.values())), list(gaps.values())[-1]
        return [*found, ("how much more with the last network", _seeds(last - first), last > first)]


class RareGainMost(SeedClaim):
    """The rarer a label in the test lists, the more a row gains over ``ALTV``: Spearman's ρ over labels is below 0."""

    def needed(self) -> Sequence[str]:
        return [*self.rows, ALTRUISTIC]

    def look(self, scores: LabelScores) -> Sequence[Looked]:
        found = []
        for row in self.rows:
            values = [_frequency_correlation(scores, row, seed) for seed in range(len(scores.seeds))]
            found.append((f"ρ of frequency and gain, {row}", _seeds(np.array(values)), [rho < 0 for rho in values]))
        return found


class GapStays(SeedClaim):
    """The sites ``low`` are scored below the sites ``high`` with each of the rows, in the mean of each."""

    low: Annotated[list[str], Field(min_length=1)]
    high: Annotated[list[str], Field(min_length=1)]

    def uses(self) -> Mapping[str, Collection[str]]:
        return {**super().uses(), "site": [*self.low, *self.high]}

    def look(self, scores: LabelScores) -> Sequence[Looked]:
        found = []
        for variant in scores.variants:
            for row in self.rows:
                of_sites = dict(zip(scores.sites, scores.values(row, variant).mean(2).T, strict=True))
                low, high = (np.mean([of_sites[site] for site in own], axis=0) for own in (self.low, self.high))
                found.append((f"{row}, {variant}", _seeds(high - low), high > low))
        return found


class CosineTellsNothing(SeedClaim):
    """Over sites, F1 does not go with the mean cosine of the site's updates: Spearman's p is at least 0.05."""

    def look(self, scores: LabelScores) -> Sequence[Looked]:
        found = []
        for row in self.rows:
            cosines, f1 = [], []
            for variant in scores.variants:
                cosines += np.nanmean(scores.rounds(row, variant, "cosine"), axis=(0, 1)).tolist()
                f1 += scores.values(row, variant).mean((0, 2)).tolist()
            rho, p = _rank_correlation(cosines, f1)
            found.append(
                (f"{row}, {len(f1)} sites and networks", f"ρ {signed(rho, 2)}, p {probability(p)}", [p >= ALPHA])
            )
        return found


class RoundTrend(RoundClaim):
    """A number of the sites' rounds, averaged over them, falls or rises from the first third to the last."""

    value: str
    rises: bool = False

    def look(self, histories: Mapping[int, RoundHistory]) -> tuple[str, list[bool]]:
        parts, found = [], []
        for seed, history in histories.items():
            if history.reported is None:
                return f"{self.value} was not measured", []
            first, last = thirds(history.reported.mean(1))
            found.append(last > first if self.rises else last < first)
            highest = int(history.reported.mean(1).argmax()) + 1
            parts.append(f"seed {seed}: {first:.3g} → {last:.3g}, highest in round {highest}")
        return f"{self.value}, first → last third of the rounds, {'; '.join(parts)}", found


def _mean(scores: LabelScores, row: str, variant: str) -> Floats:
    """(S,)."""
    return np.asarray(scores.values(row, variant).mean((1, 2)))


def _frequency_correlation(scores: LabelScores, row: str, seed: int) -> float:
    gains, shown = [], []
    for variant in scores.variants:
        total = scores.total(scores.models(row, variant)[0], scores.seeds[seed])
        shown.append(np.zeros(len(scores.labels)) if total is None else total.tp + total.fn)
        gains.append((scores.values(row, variant) - scores.values(ALTRUISTIC, variant))[seed].mean(0))
    return _rank_correlation(np.mean(shown, axis=0), np.mean(gains, axis=0))[0]


def _rank_correlation(x: Sequence[float] | Floats, y: Sequence[float] | Floats) -> tuple[float, float]:
    """Spearman's ρ and its p; 0 and 1 where one of the two does not vary."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0, 1.0
    found = spearmanr(x, y)
    return float(found.statistic), float(found.pvalue)


def _seeds(values: Floats) -> str:
    return ", ".join(signed(float(value), 3) for value in values)
