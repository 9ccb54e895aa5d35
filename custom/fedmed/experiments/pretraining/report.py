"""The claims of a pre-training table, in words."""

from collections.abc import Iterable, Sequence

from fedmed.experiments.pretraining.scores import RESAMPLES
from fedmed.experiments.pretraining.verdicts import Finding, Judged
from fedmed.experiments.verdicts import ALPHA, CONTRARY, HOLDS, NOT_RUN, OPEN, REPORTED, probability, signed
from fedmed.reports.words import NOTHING

RULE = f"""\
- **{HOLDS}** holds: every comparison has the claimed sign in the mean and in every seed, and p < {ALPHA}.
- **{CONTRARY}** does not hold: at least one comparison is as clearly the other way round.
- **{OPEN}** not significant: neither. The table does not decide.
- **{REPORTED}**: numbers only. **{NOT_RUN}**: an arm was not run in one of the settings.

Difference: of the means over seeds, each seed's own a mean over the choices of labelled cases. Interval (95 %) and p
(two-sided) by {RESAMPLES} resamples of the test list's patients, the same ones for both arms; p Holm-adjusted over all
comparisons of this table. They speak of other patients of the same hospital; what another training would change is
seen in the seeds alone: those that have the claimed sign are counted. Weights and r are of the rounds themselves, and
hold if they do in every seed.
"""
HEAD = ("claim", "claimed better", "than", "task", "test", "setting", "score", "difference", "95 %")
HEAD += ("p (Holm)", "seeds", "alone")


def claims_markdown(title: str, judged: Sequence[Judged]) -> str:
    """The claims with their verdicts, the rule, and the numbers behind them."""
    verdicts = [(one.claim.id, one.claim.text, one.verdict) for one in judged]
    lines = [f"# {title}: claims", "", *table(("id", "claim", "verdict"), verdicts), "", RULE]
    compared = [(one.claim, each) for one in judged for each in one.findings if isinstance(each, Finding)]
    seen = [(one.claim, each) for one in judged for each in one.findings if not isinstance(each, Finding)]
    if any(each.comparison.n_seeds == 1 for _, each in compared):
        lines += ["One seed was run: a verdict speaks of two trained models, not of two ways to train.", ""]
    if compared:
        rows = [(claim.id, *_cells(each, claim.report)) for claim, each in compared]
        lines += ["## Comparisons", "", *table(HEAD, rows), ""]
    if seen:
        rows = [(claim.id, each.arm, each.words, each.outcome) for claim, each in seen]
        lines += ["## Rounds", "", *table(("claim", "arm", "found", "alone"), rows), ""]
    return "\n".join(lines)


def _cells(finding: Finding, report: bool) -> tuple[str, ...]:
    c, at = finding.comparison, finding.comparison.setting
    highest = ", highest epoch" if at.model == "highest" else ""
    return (
        c.better,
        c.worse,
        at.task,
        at.test,
        f"{at.protocol}, {percent(at.fraction)}{highest}",
        c.metric,
        signed(c.difference, 3),
        f"{signed(c.low, 3)} to {signed(c.high, 3)}",
        probability(finding.p_holm),
        f"{c.seeds_agreeing}/{c.n_seeds}",
        NOTHING if report else finding.outcome,
    )


def percent(fraction: float) -> str:
    return f"{100 * fraction:g} %"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]
