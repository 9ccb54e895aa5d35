"""Which sites gain most: those where another arm, such as a model of the site alone, is weakest."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field, model_validator

from research.runner.case_claims import CasePair, case_kind
from research.runner.paired_statistics import DECIMALS
from research.runner.score_table import selected
from research.runner.site_scores import means_of_units
from research.runner.table_claim import ClaimFinding, Evidence, TableClaim, Verdict
from research.runner.words_of_tables import signed


class WeakestGainMost(TableClaim):
    """The sites where ``over`` is weakest gain more by ``arm``, in the mean, than the others do.

    The model of the last round; each site's score is the mean over the units of its test list, and the weakest sites
    are told by the mean over all seeds. A site that is weak by chance in some seeds gains there by chance too, so half
    of a gain of this kind can be nothing but regression to the mean; the claim is about many seeds alike.
    """

    rule: ClassVar[str] = """\
**Weakest gain most.** **✓**: in every seed the mean gain of the weakest sites is above that of the others. **✗**: in
none. **n.s.**: neither. It is no test: the sites are few.
"""

    arm: str
    over: str
    sites: Annotated[list[str], Field(min_length=2)]  # as the table names them
    weakest: Annotated[int, Field(ge=1)]  # how many of them
    score: str | None = None  # None = the table's first

    @model_validator(mode="after")
    def _some_are_left(self) -> "WeakestGainMost":
        if self.weakest >= len(self.sites):
            raise ValueError(
                f"'weakest' is {self.weakest} of {len(self.sites)} sites; some must be left to compare with"
            )
        if self.arm == self.over:
            raise ValueError(f"'{self.arm}' is compared with itself; name two arms")
        return self

    def uses(self) -> Mapping[str, Collection[str]]:
        named = {"arm": [self.arm, self.over], "site": self.sites}
        return {**named, "score": [self.score] if self.score else []}

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        before, after = (self._scores(evidence, arm) for arm in (self.over, self.arm))
        if before is None or after is None:
            return []
        gains = (after - before).dropna()
        weak = list(before.mean().sort_values(kind="stable").index[: self.weakest])
        apart = np.round(gains[weak].mean(axis=1) - gains.drop(columns=weak).mean(axis=1), DECIMALS)
        told = {site: signed(float(gains[site].mean()), 3) for site in gains}
        cells = {"arm": self.arm, "over": self.over, "weakest": ", ".join(weak)}
        cells |= {"gains": ", ".join(f"{site} {gain}" for site, gain in told.items())}
        cells |= {"weakest more than others": signed(float(apart.mean()), 3)}
        seeds = tuple(float(value) for value in apart)
        record: dict[str, Any] = {"better": self.arm, "worse": self.over, "difference": float(apart.mean()), "p": None}
        return [ClaimFinding("Who gains", tuple(cells.items()), seeds, tuple(record.items()), found=_verdict(seeds))]

    def _scores(self, evidence: Evidence, arm: str) -> pd.DataFrame | None:
        """A row a seed, a column a site; None where a site has no score."""
        kind = case_kind(evidence, CasePair(better=self.arm, worse=self.over, sites=self.sites, score=self.score))
        sites = [evidence.sites[site] for site in self.sites]
        found = means_of_units(selected(evidence.frame, arm=arm), kind, "last").droplevel("arm").unstack("site")
        return found[sites] if set(sites) <= set(found) and found[sites].notna().all(axis=None) else None


def _verdict(seeds: tuple[float, ...]) -> Verdict:
    if all(value > 0 for value in seeds):
        return Verdict.HOLDS
    return Verdict.OPEN if any(value > 0 for value in seeds) else Verdict.CONTRARY
