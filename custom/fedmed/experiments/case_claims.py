"""One arm is better than another at a site, case by case: Wilcoxon's test over the units of a test list."""

from collections.abc import Collection
from typing import Annotated, ClassVar

import pandas as pd
from pydantic import Field

from fedmed.errors import DataError
from fedmed.experiments.case_comparison import CasePair, compare_cases
from fedmed.experiments.claim_findings import ClaimFinding
from fedmed.experiments.score_kinds import UnitMean
from fedmed.experiments.score_table import selected
from fedmed.experiments.table_claim import BetterClaim, Evidence, known


class BetterByCases(BetterClaim):
    """One arm is better than another, at every site and in every comparison that is named."""

    rule: ClassVar[str] = """\
- **✓**: every comparison has the claimed sign in the mean and in every seed, and p < 0.05 in that direction.
- **✗**: at least one comparison is as clearly the other way round: the sign in every seed, and p < 0.05.
- **direction**: the claimed sign in every seed, but some comparison is of validation means, of which a run has only
  one, and with fewer than 6 seeds no test can tell them from chance.
- **n.s.**: neither. The table does not decide.
- **not run**: an arm has no scores at a site: it was not run, or has no decoder that the site could be scored with.

p: two-sided Wilcoxon signed-rank test over the {unit}s of the test list, each {unit}'s {label} averaged \
over the seeds first,
Holm-adjusted over all comparisons of this table. For validation means it is over the seeds. \
It speaks of other {unit}s
from the same sites; what another training run would change is seen in the seeds alone. Effect: matched-pairs
rank-biserial correlation, −1 to 1. Seeds: those whose mean difference has the claimed sign.
"""

    holds: Annotated[list[CasePair], Field(min_length=1)]

    def check(self, sites: Collection[str], scores: Collection[str]) -> None:
        known(self, "site", [site for pair in self.holds for site in pair.sites], sites)
        known(self, "score", [pair.score for pair in self.holds if pair.score], scores)

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        wanted = [(pair, evidence.sites[site]) for pair in self.holds for site in pair.sites]
        found = [_sides(evidence, pair, site) for pair, site in wanted]
        if any(high.empty or low.empty for high, low in found):
            return []
        return [
            compare_cases(*sides, pair, site, _kind(evidence, pair).label)
            for (pair, site), sides in zip(wanted, found, strict=True)
        ]


def _kind(evidence: Evidence, pair: CasePair) -> UnitMean:
    kind = evidence.kinds[pair.score or next(iter(evidence.kinds))]
    if not isinstance(kind, UnitMean):
        raise DataError(f"'{kind.label}' is not a score of single cases; compare it by BetterByPatients")
    return kind


def _sides(evidence: Evidence, pair: CasePair, site: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    at = {"site": site, "list": pair.list, "model": pair.model, "metric": _kind(evidence, pair).metric}
    rows = selected(evidence.frame, **at).astype({"unit": str})
    return selected(rows, arm=pair.better), selected(rows, arm=pair.worse)
