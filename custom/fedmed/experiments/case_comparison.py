"""One arm against another at one site, case by case."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from fedmed.errors import DataError
from fedmed.experiments.claim_findings import OverSeeds, Verdict
from fedmed.experiments.paired_statistics import DECIMALS, rank_biserial, wilcoxon_signed_rank
from fedmed.experiments.score_table import MEAN_UNIT
from fedmed.experiments.table_claim import ArmPair
from fedmed.experiments.words_of_tables import probability, signed
from fedmed.reports.words import NOTHING

SEEDS_FOR_P = 5  # fewer seeds have no p over seeds
SEEDS_FOR_VERDICT = 6  # with fewer, no two-sided p over seeds can be below 0.05: that of five is 2/32 at least


@dataclass(frozen=True)
class CaseComparison(OverSeeds):
    """Paired difference of two arms' scores at one site: ``better`` - ``worse``.

    Attributes:
        better, worse: arms, named by what is claimed.
        site, list, model, label: which score, and what a person reads for it.
        difference: mean over cases and seeds; above 0 as claimed.
        n_cases: cases of each seed; 1 for a list of which a run has one mean.
        p_cases: two-sided Wilcoxon over cases, each one's score averaged over the seeds first, so that seeds do not
            multiply cases; None for a list of means.
        p_seeds: the same over the seeds' means; None below five seeds.
        effect: matched-pairs rank-biserial correlation over cases (of means: over seeds), -1..1.
        seed_differences: mean difference of each seed.
    """

    title: ClassVar[str] = "Comparisons"

    better: str
    worse: str
    site: str
    list: str
    model: str
    label: str
    difference: float
    n_cases: int
    p_cases: float | None
    p_seeds: float | None
    effect: float
    seed_differences: tuple[float, ...]

    @property
    def head(self) -> tuple[str, ...]:
        names = ("claim", "claimed better", "than", "site", self.label, "cases", "difference", "p (Holm)", "effect")
        return (*names, "seeds", "alone")

    @property
    def p(self) -> float | None:
        """The p that a verdict rests on: over cases, or over enough seeds where there are no cases."""
        return self.p_cases if self.p_cases is not None or self.n_seeds < SEEDS_FOR_VERDICT else self.p_seeds

    def outcome(self, p_holm: float | None) -> str:
        if p_holm is None:
            return Verdict.DIRECTION if self.seeds_agreeing == self.n_seeds else Verdict.OPEN
        # Ranks and mean can disagree about the direction; then the test does not speak for the mean.
        return self.clear(p_holm, self.effect)

    def cells(self, p_holm: float | None, outcome: str) -> tuple[str, ...]:
        return (
            self.better,
            self.worse,
            self.site,
            f"{self.list}, {self.model}",
            str(self.n_cases) if self.p_cases is not None else NOTHING,
            signed(self.difference, 3),
            probability(p_holm),
            signed(self.effect, 2),
            f"{self.seeds_agreeing}/{self.n_seeds}",
            outcome,
        )

    def record(self) -> dict[str, Any]:
        names = ("better", "worse", "site", "list", "model", "difference", "n_cases", "n_seeds", "seeds_agreeing")
        return {name: getattr(self, name) for name in (*names, "seeds_against", "p", "p_seeds", "effect")}


class CasePair(ArmPair):
    """The arm ``better`` is above the arm ``worse`` at each of the sites.

    Attributes:
        sites: as the table names them.
        list: ``test``, or ``valid``, of which a run has one mean.
        model: of the ``last`` round, or the one that labelled sites ``selected``.
        score: None = the table's first.
    """

    sites: Annotated[list[str], Field(min_length=1)]
    list: Literal["test", "valid"] = "test"
    model: Literal["last", "selected"] = "last"
    score: str | None = None


def compare_cases(high: pd.DataFrame, low: pd.DataFrame, pair: CasePair, site: str, label: str) -> CaseComparison:
    """Compare two arms at a site over the same cases and seeds.

    Args:
        high, low: rows of the score table of the arm that is claimed to be better, and of the other.
        pair, site, label: which.

    Raises:
        DataError: the arms or an arm's seeds have different cases; names the first one.
    """
    a, b = (own.pivot(index="seed", columns="unit", values="value").sort_index(axis=1) for own in (high, low))
    _check_pairs(a, b, pair, site)
    cases = list(a.columns) != [MEAN_UNIT]
    x, y = a.to_numpy(), b.to_numpy()
    over_cases, over_seeds = (x.mean(0), y.mean(0)), (x.mean(1), y.mean(1))
    return CaseComparison(
        better=pair.better,
        worse=pair.worse,
        site=site,
        list=pair.list,
        model=pair.model,
        label=label,
        difference=float(np.round((x - y).mean(), DECIMALS)),
        n_cases=len(a.columns),
        p_cases=wilcoxon_signed_rank(*over_cases) if cases else None,
        p_seeds=wilcoxon_signed_rank(*over_seeds) if len(a) >= SEEDS_FOR_P else None,
        effect=rank_biserial(*(over_cases if cases else over_seeds)),
        seed_differences=tuple(float(d) for d in np.round((x - y).mean(1), DECIMALS)),
    )


def _check_pairs(high: pd.DataFrame, low: pd.DataFrame, pair: CasePair, site: str) -> None:
    """Both arms have the same seeds, and the same cases in every one of them."""
    if unpaired := sorted(set(high.index) ^ set(low.index)):
        arm = pair.worse if unpaired[0] in high.index else pair.better
        raise DataError(f"arm '{arm}' has no scores of seed {unpaired[0]} at site '{site}'; run it with the same seeds")
    cases = sorted({*high.columns, *low.columns})
    for arm, own in ((pair.better, high), (pair.worse, low)):
        missing = own.reindex(columns=cases).isna().stack()
        if missing.any():
            seed, case = missing.idxmax()
            raise DataError(
                f"arm '{arm}', site '{site}', seed {seed} lacks case '{case}', which another run has; run both on the "
                "same test list"
            )
