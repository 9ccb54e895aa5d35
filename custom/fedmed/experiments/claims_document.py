"""The claims of a table in words: verdicts, the rule behind them, and the numbers."""

from collections.abc import Mapping, Sequence

import pandas as pd

from fedmed.experiments.claim_findings import OverSeeds
from fedmed.experiments.judgement import JudgedClaim
from fedmed.experiments.score_kinds import ScoreKind
from fedmed.experiments.words_of_tables import markdown_table
from fedmed.reports.words import NOTHING

ONE_SEED = "One seed was run: a verdict speaks of two trained models, not of two ways to train."


def claims_markdown(title: str, judged: Sequence[JudgedClaim], kinds: Mapping[str, ScoreKind]) -> str:
    """``claims.md``: the verdicts, then a table of each sort of finding."""
    verdicts = [(str(one.claim.id), one.claim.text, one.verdict) for one in judged]
    first = next(iter(kinds.values()))
    rules = dict.fromkeys(one.claim.rule.format(unit=first.unit, label=first.label) for one in judged)
    lines = [f"# {title}: claims", "", *markdown_table(("id", "claim", "verdict"), verdicts), "", *rules]
    found = [each.finding for one in judged for each in one.findings]
    if any(isinstance(each, OverSeeds) and each.n_seeds == 1 for each in found):
        lines += [ONE_SEED, ""]
    sections: dict[tuple, list[tuple[str, ...]]] = {}
    for one in judged:
        for each in one.findings:
            cells = each.finding.cells(each.p_holm, NOTHING if one.claim.report else each.outcome)
            sections.setdefault((each.finding.title, each.finding.head), []).append((str(one.claim.id), *cells))
    for (heading, head), rows in sections.items():
        lines += [f"## {heading}", "", *markdown_table(head, rows), ""]
    return "\n".join(lines)


def comparisons_csv(judged: Sequence[JudgedClaim]) -> str:
    """One line a claim and comparison, unrounded; p is empty where there is no test."""
    rows = [
        {"claim": one.claim.id, **record, "p_holm": each.p_holm, "outcome": each.outcome}
        for one in judged
        for each in one.findings
        if (record := each.finding.record()) is not None
    ]
    frame = pd.DataFrame(rows)
    if len(frame):
        frame.insert(list(frame).index("p") + 1, "p_holm", frame.pop("p_holm"))
    return frame.to_csv(index=False, lineterminator="\n")
