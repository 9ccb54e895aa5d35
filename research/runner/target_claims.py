"""Targets with a number: a gain over the controls, no loss elsewhere, a part of what labels would bring."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fedmed.reports.words import NOTHING
from research.runner.case_claims import CasePair, case_kind, case_scores, compare_cases
from research.runner.experiment_data import Names
from research.runner.table_claim import ALPHA, ClaimFinding, Evidence, TableClaim, Verdict, signs
from research.runner.words_of_tables import percent, signed

SEEDS_THAT_MAY_DIFFER = 1  # of three or more
TARGET_RULE = """\
**Targets.** A gain is over the control with the higher mean at that site.

- **✓** of a gain: the mean difference is at least the wanted one, all seeds but one have its sign (of one or two seeds,
  all), and p < 0.05 in that direction: two-sided Wilcoxon signed-rank test over patients, the scores of each averaged
  over the seeds first, Holm-adjusted over all comparisons of this table. **✗**: as clearly the other way round.
  **n.s.**: neither.
- **✓** of "not lower": the mean difference to every control, or where it says "in every seed" that of the worst seed,
  is above the limit; else **✗**. **✓** of a part of a distance: it is at least the wanted one; else **✗**; **n.s.**
  where there is no distance. These two are no tests.
"""


@dataclass(frozen=True)
class GainFinding(ClaimFinding):
    """A comparison that must reach a difference, in all seeds but one."""

    at_least: float = 0.0
    difference: float = 0.0

    @property
    def outcome(self) -> Verdict:
        n, agreeing, against = signs(self.seeds).values()
        enough = n - (SEEDS_THAT_MAY_DIFFER if n > 2 else 0)
        if self.p_holm is None or self.p_holm >= ALPHA:
            return Verdict.OPEN
        if self.difference >= self.at_least and self.direction > 0 and agreeing >= enough:
            return Verdict.HOLDS
        return Verdict.CONTRARY if self.difference < 0 > self.direction and against >= enough else Verdict.OPEN


class ArmTarget(TableClaim):
    """Base: what test lists show of an ``arm``, beside other arms; of the model of its last round unless it says so."""

    arm: str
    score: str | None = None  # None = the table's first

    @model_validator(mode="after")
    def _differ(self) -> "ArmTarget":
        if self.arm in self.others():
            raise ValueError(f"'{self.arm}' is compared with itself; name other arms")
        return self

    @abstractmethod
    def others(self) -> list[str]:
        """Arms that it is compared with."""

    def uses(self) -> Mapping[str, Collection[str]]:
        return {"arm": [self.arm, *self.others()], "score": [self.score] if self.score else []}

    @abstractmethod
    def judged(self, compared: list[ClaimFinding]) -> list[ClaimFinding]:
        """Judge one place, from the comparisons with every other arm there."""


class CaseTarget(ArmTarget):
    """Base: a target of the mean over the cases of test lists."""

    rule: ClassVar[str] = TARGET_RULE

    sites: Names  # as the table names them
    together: bool = False  # one comparison over the cases of all sites
    model: Literal["last", "selected"] = "last"  # ``selected``: the one that is the result of the arm's job

    def uses(self) -> Mapping[str, Collection[str]]:
        return {**super().uses(), "site": self.sites}

    def compared(self, evidence: Evidence, other: str, sites: list[str]) -> ClaimFinding | None:
        """The arm beside another one, whose seeds and cases it must have; None where one was not run."""
        pair = CasePair(better=self.arm, worse=other, sites=sites, score=self.score, model=self.model)
        known = [evidence.sites[site] for site in sites]
        high, low = case_scores(evidence, pair, *known)
        if high.empty or low.empty:
            return None
        return compare_cases(high, low, pair, ", ".join(known), case_kind(evidence, pair).label)

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        findings: list[ClaimFinding] = []
        for sites in [self.sites] if self.together else [[site] for site in self.sites]:
            compared = [self.compared(evidence, other, sites) for other in self.others()]
            known = [each for each in compared if each is not None]
            if len(known) < len(compared):
                return []
            findings += self.judged(known)
        return findings


class GainOverControls(CaseTarget):
    """The arm gains at least so much over the better of several controls, in all seeds but one, with p < 0.05."""

    over: Annotated[list[str], Field(min_length=1)]
    at_least: Annotated[float, Field(ge=0)]

    def others(self) -> list[str]:
        return self.over

    def judged(self, compared: list[ClaimFinding]) -> list[ClaimFinding]:
        return [gain_over(compared, self.at_least)]


class NotLower(CaseTarget):
    """The arm is at most ``margin`` lower than each of some others, in the mean or ``in_every_seed``."""

    than: Annotated[list[str], Field(min_length=1)]
    margin: Annotated[float, Field(ge=0)]
    in_every_seed: bool = False

    def others(self) -> list[str]:
        return self.than

    def judged(self, compared: list[ClaimFinding]) -> list[ClaimFinding]:
        shown = ("than", "site", "cases", "difference")
        return [not_lower(each, self.arm, self.margin, self.in_every_seed, shown) for each in compared]


class CoversDistance(CaseTarget):
    """The arm covers at least such a share of the distance from one arm to another: (arm - start) / (end - start)."""

    start: str
    end: str
    at_least: Annotated[float, Field(gt=0)]

    def others(self) -> list[str]:
        return [self.start, self.end]

    def holds(self, share: float) -> bool:
        """Tell whether the claim is right with this share of the distance."""
        return share >= self.at_least

    def wanted(self) -> str:
        """The share that is claimed, in words."""
        return percent(self.at_least)

    def judged(self, compared: list[ClaimFinding]) -> list[ClaimFinding]:
        gained, left = difference(compared[0]), -difference(compared[1])
        distance = gained + left
        share = gained / distance if distance > 0 else None
        cells = {"arm": self.arm, "from": self.start, "to": self.end, "site": dict(compared[0].cells)["site"]}
        cells |= {"distance": signed(distance, 3), "gained": signed(gained, 3)}
        cells |= {"part": NOTHING if share is None else percent(round(share, 2)), "wanted": self.wanted()}
        enough = None if share is None else self.holds(share)
        return [_without_test("Part of a distance", cells, compared[0], enough)]


class CoversLittle(CoversDistance):
    """The arm covers at most such a share of the distance: (arm - start) / (end - start); less than nothing is little.

    ``at_least`` is the share that it must stay below.
    """

    def holds(self, share: float) -> bool:
        return share < self.at_least

    def wanted(self) -> str:
        return f"below {percent(self.at_least)}"


def gain_over(compared: Sequence[ClaimFinding], at_least: float) -> GainFinding:
    """Of comparisons with several controls, the one with the better of them, which must reach a difference."""
    better = min(compared, key=difference)  # the smaller the difference, the better the control
    cells = (*better.cells, ("wanted", signed(at_least, 3)))
    values = {name: getattr(better, name) for name in ("seeds", "record", "p", "direction", "too_few")}
    return GainFinding(better.title, cells, **values, at_least=at_least, difference=difference(better))


def not_lower(
    finding: ClaimFinding, arm: str, margin: float, in_every_seed: bool, shown: Sequence[str]
) -> ClaimFinding:
    """Of a comparison, whether the arm is at most ``margin`` lower; ``shown`` are the comparison's cells to repeat."""
    least = min(finding.seeds) if in_every_seed else difference(finding)
    limit = f"{signed(-margin, 3)}{', in every seed' if in_every_seed else ''}"
    said = dict(finding.cells)
    cells = {"arm": arm, **{name: said[name] for name in shown}}
    cells |= {"worst seed": signed(min(finding.seeds), 3), "limit": limit}
    return _without_test("Not lower", cells, finding, least >= -margin)


def difference(finding: ClaimFinding) -> float:
    """Of a comparison, the mean over cases and seeds, above 0 as claimed."""
    return float(dict(finding.record)["difference"])


def _without_test(title: str, cells: dict[str, str], finding: ClaimFinding, holds: bool | None) -> ClaimFinding:
    outcome = Verdict.OPEN if holds is None else Verdict.HOLDS if holds else Verdict.CONTRARY
    record: dict[str, Any] = {**dict(finding.record), "p": None}
    return ClaimFinding(title, tuple(cells.items()), finding.seeds, tuple(record.items()), verdict=outcome)
