"""Judgement of a table's claims, by one rule for all kinds of them, and the files that say it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from fedmed.reports.words import NOTHING
from research.runner.paired_statistics import holm
from research.runner.score_kinds import ScoreKind
from research.runner.table_claim import P_COLUMN, ClaimFinding, Evidence, TableClaim, Verdict, signs
from research.runner.words_of_tables import csv_bytes, markdown_table, probability

CHOSEN_AFTER = (
    "**◇** would be ✓, but the claim was chosen after numbers of this data had been seen: to be confirmed it needs "
    "data of its own."
)
ONE_SEED = "One seed was run: a verdict speaks of two trained models, not of two ways to train."


@dataclass(frozen=True)
class JudgedClaim:
    """A claim and what was found; nothing where an arm of it was not run."""

    claim: TableClaim
    findings: tuple[ClaimFinding, ...]
    seen_before: bool = False  # the claim was chosen after numbers of this data had been seen

    def marked(self, outcome: Verdict) -> Verdict:
        """An outcome as it is shown: ``◇`` for ``✓`` where the claim cannot be confirmed by this data."""
        return Verdict.SEEN_BEFORE if self.seen_before and outcome is Verdict.HOLDS else outcome

    @property
    def verdict(self) -> Verdict:
        return self.marked(self._verdict)

    @property
    def _verdict(self) -> Verdict:
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
    findings = [claim.findings(evidence) for claim in claims]
    tests = {each: each.p for of_claim in findings for each in of_claim if each.p is not None}  # shared ones once
    adjusted = dict(zip(tests, holm(list(tests.values())), strict=True))
    return [
        JudgedClaim(
            claim,
            tuple(replace(each, p_holm=adjusted.get(each)) for each in of_claim),
            evidence.data in claim.chosen_after,
        )
        for claim, of_claim in zip(claims, findings, strict=True)
    ]


def claims_markdown(title: str, judged: Sequence[JudgedClaim], kinds: Mapping[str, ScoreKind]) -> str:
    """``claims.md``: the verdicts, the rules behind them, then a table of each sort of finding."""
    verdicts = [(str(one.claim.id), one.claim.text, one.verdict) for one in judged]
    first = next(iter(kinds.values()))
    rules = dict.fromkeys(one.claim.rule.format(unit=first.unit, label=first.label) for one in judged)
    lines = [f"# {title}: claims", "", *markdown_table(("id", "claim", "verdict"), verdicts), "", *rules]
    if any(one.seen_before for one in judged):
        lines += [CHOSEN_AFTER, ""]
    if any(len(each.seeds) == 1 for one in judged for each in one.findings):
        lines += [ONE_SEED, ""]
    sections: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for one in judged:
        for each in one.findings:
            cells = {"claim": str(one.claim.id), **dict(each.cells)}
            if P_COLUMN in cells:
                cells[P_COLUMN] = probability(each.p_holm)
                cells["seeds"] = f"{signs(each.seeds)['seeds_agreeing']}/{len(each.seeds)}"
            cells["alone"] = NOTHING if one.claim.report else _outcome(one, each)
            sections.setdefault((each.title, *cells), []).append(tuple(cells.values()))
    for (heading, *head), rows in sections.items():
        lines += [f"## {heading}", "", *markdown_table(head, rows), ""]
    return "\n".join(lines)


def _outcome(judged: JudgedClaim, finding: ClaimFinding) -> str:
    outcome = judged.marked(finding.outcome)
    return f"{outcome}: {finding.too_few}" if finding.too_few and outcome is Verdict.OPEN else outcome


def comparisons_csv(judged: Sequence[JudgedClaim]) -> str:
    """One line a claim and comparison, unrounded; p is empty where there is no test."""
    rows = [
        {"claim": one.claim.id, **dict(each.record), "p_holm": each.p_holm, "outcome": one.marked(each.outcome)}
        for one in judged
        for each in one.findings
        if each.record
    ]
    frame = pd.DataFrame(rows)
    if len(frame):
        frame.insert(list(frame).index("p") + 1, "p_holm", frame.pop("p_holm"))
    return csv_bytes(frame).decode()
