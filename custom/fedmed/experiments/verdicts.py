"""Whether a table's claims hold, by one rule for all of them."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from fedmed.experiments.claims import Claim, Pair
from fedmed.experiments.comparison import SEEDS_FOR_VERDICT, Comparison, adjusted, compare
from fedmed.experiments.scores import Score
from fedmed.reports.words import NOTHING

ALPHA = 0.05
HOLDS, CONTRARY, DIRECTION, OPEN, REPORTED, NOT_RUN = "✓", "✗", "direction", "n.s.", "reported", "not run"
RULE = f"""\
- **{HOLDS}**: every comparison has the claimed sign in the mean and in every seed, and p < {ALPHA} in that direction.
- **{CONTRARY}**: at least one comparison is as clearly the other way round: the sign in every seed, and p < {ALPHA}.
- **{DIRECTION}**: the claimed sign in every seed, but some comparison is of validation means, of which a run has only
  one, and with fewer than {SEEDS_FOR_VERDICT} seeds no test can tell them from chance.
- **{OPEN}**: neither. The table does not decide.
- **{NOT_RUN}**: an arm has no scores at a site: it was not run, or has no decoder that the site could be scored with.

p: two-sided Wilcoxon signed-rank test over the cases of the test list, each case's Dice averaged over the seeds first,
Holm-adjusted over all comparisons of this table. For validation means it is over the seeds. It speaks of other cases
from the same sites; what another training run would change is seen in the seeds alone. Effect: matched-pairs
rank-biserial correlation, −1 to 1. Seeds: those whose mean difference has the claimed sign.
"""


@dataclass(frozen=True)
class Finding:
    """A comparison and its p, Holm-adjusted over the table; None where there is no test."""

    comparison: Comparison
    p_holm: float | None

    @property
    def outcome(self) -> str:
        """``✓``, ``✗``, ``direction`` or ``n.s.`` of this comparison alone."""
        c = self.comparison
        agree, against = c.seeds_agreeing == c.n_seeds, c.seeds_against == c.n_seeds
        if self.p_holm is None:
            return DIRECTION if agree else OPEN
        # Ranks and mean can disagree about the direction; then the test does not speak for the mean.
        if self.p_holm < ALPHA and agree and c.effect > 0:
            return HOLDS
        return CONTRARY if self.p_holm < ALPHA and against and c.effect < 0 else OPEN


@dataclass(frozen=True)
class Judged:
    """A claim and what was found; no findings when an arm of it has no scores at a site."""

    claim: Claim
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> str:
        outcomes = {finding.outcome for finding in self.findings}
        if not outcomes or self.claim.report:
            return REPORTED if outcomes else NOT_RUN
        if CONTRARY in outcomes:
            return CONTRARY
        if outcomes <= {HOLDS, DIRECTION}:
            return DIRECTION if DIRECTION in outcomes else HOLDS
        return OPEN


def judge(claims: Sequence[Claim], scores: Sequence[Score]) -> list[Judged]:
    """Compare what the claims compare, adjust over all of it together, and judge each claim.

    Raises:
        DataError: the arms of a comparison have different cases or seeds.
    """
    there = {(score.arm, score.site, score.list, score.model) for score in scores}
    can = [claim for claim in claims if all(_sides(pair) <= there for pair in claim.pairs)]
    pairs = list(dict.fromkeys(pair for claim in can for pair in claim.pairs))  # what two claims share is tested once
    comparisons = [compare(scores, **asdict(pair)) for pair in pairs]
    found = {
        pair: Finding(comparison, p)
        for pair, comparison, p in zip(pairs, comparisons, adjusted(comparisons), strict=True)
    }
    return [Judged(claim, tuple(found[pair] for pair in claim.pairs) if claim in can else ()) for claim in claims]


def _sides(pair: Pair) -> set[tuple[str, str, str, str]]:
    return {(arm, pair.site, pair.list, pair.model) for arm in (pair.better, pair.worse)}


def claims_markdown(title: str, judged: Sequence[Judged]) -> str:
    """The claims with their verdicts, the rule, and the comparisons behind them."""
    verdicts = [(one.claim.id, one.claim.text, one.verdict) for one in judged]
    lines = [f"# {title}: claims", "", *_table(("id", "claim", "verdict"), verdicts), "", RULE]
    rows = [(one.claim.id, *_cells(finding, one.claim.report)) for one in judged for finding in one.findings]
    if any(finding.comparison.n_seeds == 1 for one in judged for finding in one.findings):
        lines += ["One seed was run: a verdict speaks of two trained models, not of two ways to train.", ""]
    head = (
        "claim",
        "claimed better",
        "than",
        "site",
        "Dice",
        "cases",
        "difference",
        "p (Holm)",
        "effect",
        "seeds",
        "alone",
    )
    return "\n".join([*lines, "## Comparisons", "", *_table(head, rows), ""])


def _cells(finding: Finding, report: bool) -> tuple[str, ...]:
    c = finding.comparison
    return (
        c.better,
        c.worse,
        c.site,
        f"{c.list}, {c.model}",
        str(c.n_cases) if c.list == "test" else NOTHING,
        signed(c.difference, 3),
        probability(finding.p_holm),
        signed(c.effect, 2),
        f"{c.seeds_agreeing}/{c.n_seeds}",
        NOTHING if report else finding.outcome,
    )


def comparisons_csv(judged: Sequence[Judged]) -> str:
    """One line a claim and comparison, unrounded; p is empty where there is no test."""
    columns = ["claim", "better", "worse", "site", "list", "model", "difference", "n_cases", "n_seeds"]
    columns += ["seeds_agreeing", "seeds_against", "p", "p_holm", "p_seeds", "effect", "outcome"]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for one in judged:
        for finding in one.findings:
            values = {"claim": one.claim.id, "p_holm": finding.p_holm, "outcome": finding.outcome}
            writer.writerow([values[k] if k in values else getattr(finding.comparison, k) for k in columns])
    return text.getvalue()


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def signed(value: float, digits: int) -> str:
    """``+0.012``, ``−0.012`` with a true minus, ``0.000`` for what rounds to it."""
    text = f"{abs(value):.{digits}f}"
    return text if not float(text) else ("+" if value > 0 else "−") + text


def probability(p: float | None) -> str:
    if p is None:
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
