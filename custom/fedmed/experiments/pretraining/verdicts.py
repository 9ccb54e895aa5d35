"""Whether the claims of a pre-training table hold, by one rule for all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedmed.experiments.pretraining.claims import Claim
from fedmed.experiments.pretraining.comparison import Comparison, compare
from fedmed.experiments.pretraining.dynamics import Dynamics, History, slowing, weight_of_node
from fedmed.experiments.pretraining.scores import Scores
from fedmed.experiments.verdicts import ALPHA, CONTRARY, HOLDS, NOT_RUN, OPEN, REPORTED
from fedmed.reports.statistics import holm


@dataclass(frozen=True)
class Finding:
    """A comparison of scores and its p, Holm-adjusted over the table."""

    comparison: Comparison
    p_holm: float

    @property
    def outcome(self) -> str:
        c = self.comparison
        clear = self.p_holm < ALPHA
        if clear and c.difference > 0 and c.seeds_agreeing == c.n_seeds:
            return HOLDS
        return CONTRARY if clear and c.difference < 0 and c.seeds_against == c.n_seeds else OPEN


@dataclass(frozen=True)
class Judged:
    """A claim and what was found; nothing where an arm of it was not run."""

    claim: Claim
    findings: tuple[Finding | Dynamics, ...]

    @property
    def verdict(self) -> str:
        outcomes = {finding.outcome for finding in self.findings}
        if not outcomes:
            return NOT_RUN
        if self.claim.report:
            return REPORTED
        if CONTRARY in outcomes:
            return CONTRARY
        return HOLDS if outcomes == {HOLDS} else OPEN


def judge(claims: Sequence[Claim], scores: Scores, histories: Mapping[str, Mapping[int, History]]) -> list[Judged]:
    """Compare what the claims compare, adjust p over all of the table together, and judge each claim.

    Args:
        claims: of the table.
        scores: of its arms.
        histories: arm -> seed -> what its rounds recorded.

    Raises:
        DataError: two arms of a comparison have different seeds.
    """
    compared = {claim.id: _comparisons(claim, scores) for claim in claims if claim.kind == "holds"}
    unique = list(dict.fromkeys(each for found in compared.values() for each in found))
    p = dict(zip(unique, holm([each.p for each in unique]), strict=True))
    judged = []
    for claim in claims:
        if claim.kind == "holds":
            judged.append(Judged(claim, tuple(Finding(each, p[each]) for each in compared[claim.id])))
        elif all(histories.get(arm) for arm in claim.arms):
            look = slowing if claim.kind == "slows" else weight_of_node
            judged.append(Judged(claim, tuple(look(arm, histories[arm], claim.node) for arm in claim.arms)))
        else:
            judged.append(Judged(claim, ()))
    return judged


def _comparisons(claim: Claim, scores: Scores) -> list[Comparison]:
    """All comparisons of a claim; none if one of them lacks an arm: a part of a claim is not judged as the whole."""
    tasks = list(dict.fromkeys(setting.task for setting in scores.settings()))
    wanted = [
        (pair, setting, metric) for pair in claim.pairs for setting in pair.settings(tasks) for metric in pair.metrics
    ]
    if not all(scores.seeds(arm, setting) for pair, setting, _ in wanted for arm in (pair.better, pair.worse)):
        return []
    return [compare(scores, pair.better, pair.worse, setting, metric) for pair, setting, metric in wanted]
