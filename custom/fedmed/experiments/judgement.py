"""Whether the claims of a table hold, by one rule for all kinds of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedmed.experiments.claim_findings import ClaimFinding, Verdict
from fedmed.experiments.paired_statistics import holm
from fedmed.experiments.table_claim import Evidence, TableClaim


@dataclass(frozen=True)
class JudgedFinding:
    """A finding and its p, Holm-adjusted over the table; None where there is no test."""

    finding: ClaimFinding
    p_holm: float | None

    @property
    def outcome(self) -> str:
        return self.finding.outcome(self.p_holm)


@dataclass(frozen=True)
class JudgedClaim:
    """A claim and what was found; nothing where an arm of it was not run."""

    claim: TableClaim
    findings: tuple[JudgedFinding, ...]

    @property
    def verdict(self) -> str:
        outcomes = {finding.outcome for finding in self.findings}
        if not outcomes or self.claim.report:
            return Verdict.REPORTED if outcomes else Verdict.NOT_RUN
        if Verdict.CONTRARY in outcomes:
            return Verdict.CONTRARY
        if outcomes <= {Verdict.HOLDS, Verdict.DIRECTION}:
            return Verdict.DIRECTION if Verdict.DIRECTION in outcomes else Verdict.HOLDS
        return Verdict.OPEN


def judge(claims: Sequence[TableClaim], evidence: Evidence) -> list[JudgedClaim]:
    """Look at what the claims speak of, adjust p over all of the table together, and judge each claim.

    Raises:
        DataError: two arms of a comparison cannot be paired.
    """
    found = [claim.findings(evidence) for claim in claims]
    tested = list(dict.fromkeys(each for own in found for each in own if each.p is not None))  # shared ones once
    adjusted = dict(zip(tested, holm([each.p for each in tested]), strict=True))
    return [
        JudgedClaim(claim, tuple(JudgedFinding(each, adjusted.get(each)) for each in own))
        for claim, own in zip(claims, found, strict=True)
    ]
