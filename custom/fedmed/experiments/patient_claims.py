"""One arm is better than another over resampled patients, with other shares of labels and tasks."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedmed.errors import DataError
from fedmed.experiments.claim_findings import ClaimFinding, OverSeeds
from fedmed.experiments.experiment_data import Names, Shares
from fedmed.experiments.paired_statistics import DECIMALS
from fedmed.experiments.patient_resampling import PatientResamples, Setting
from fedmed.experiments.score_kinds import interval
from fedmed.experiments.table_claim import ArmPair, BetterClaim, Evidence, known
from fedmed.experiments.words_of_tables import percent, probability, signed

PATIENT_RULE = """\
- **✓** holds: every comparison has the claimed sign in the mean and in every seed, and p < 0.05.
- **✗** does not hold: at least one comparison is as clearly the other way round.
- **n.s.** not significant: neither. The table does not decide.
- **reported**: numbers only. **not run**: an arm was not run in one of the settings.

Difference: of the means over seeds, each seed's own a mean over the choices of labelled cases. Interval (95 %) and p
(two-sided) by 2000 resamples of the test list's patients, the same ones for both arms; p Holm-adjusted over all
comparisons of this table. They speak of other patients of the same hospital; what another training would change is
seen in the seeds alone: those that have the claimed sign are counted. Weights and r are of the rounds themselves, and
hold if they do in every seed.
"""


@dataclass(frozen=True)
class PatientComparison(OverSeeds):
    """Difference of two arms' scores in one setting, ``better`` - ``worse``.

    Attributes:
        better, worse: arms, named by what is claimed.
        setting, score: what is compared.
        difference: mean over seeds; above 0 as claimed.
        low, high: 95 % interval over patients, of the mean over seeds.
        p: two-sided, by resampling patients: how often the difference changes its sign.
        seed_differences: of each seed.
    """

    title: ClassVar[str] = "Comparisons"
    head: ClassVar[tuple[str, ...]] = (
        *("claim", "claimed better", "than", "task", "test", "setting", "score", "difference", "95 %"),
        *("p (Holm)", "seeds", "alone"),
    )

    better: str
    worse: str
    setting: Setting
    score: str
    difference: float
    low: float
    high: float
    p: float
    seed_differences: tuple[float, ...]

    def outcome(self, p_holm: float) -> str:
        return self.clear(p_holm, self.difference)

    def cells(self, p_holm: float, outcome: str) -> tuple[str, ...]:
        at = self.setting
        highest = ", highest epoch" if at.model == "highest" else ""
        return (
            self.better,
            self.worse,
            at.task,
            at.list,
            f"{at.protocol}, {percent(at.fraction)}{highest}",
            self.score,
            signed(self.difference, 3),
            f"{signed(self.low, 3)} to {signed(self.high, 3)}",
            probability(p_holm),
            f"{self.seeds_agreeing}/{self.n_seeds}",
            outcome,
        )

    def record(self) -> dict[str, Any]:
        names = ("score", "difference", "low", "high", "n_seeds", "seeds_agreeing", "seeds_against", "p")
        own = {"better": self.better, "worse": self.worse, **vars(self.setting)}
        return own | {name: getattr(self, name) for name in names}


class PatientPair(ArmPair):
    """The arm ``better`` is above the arm ``worse``, in every setting that the lists name.

    Attributes:
        protocol, fractions, list, model: settings, as in :class:`fedmed.experiments.patient_resampling.Setting`.
        scores: of the table's; None = its first.
        tasks: None = all.
    """

    protocol: Literal["linear", "finetune"]
    fractions: Shares
    scores: Names | None = None
    list: Literal["internal", "external"] = "internal"
    model: Literal["last", "highest"] = "last"
    tasks: Names | None = None

    def settings(self, tasks: Collection[str]) -> "list[Setting]":
        wanted = tasks if self.tasks is None else self.tasks
        return [Setting(task, self.list, self.protocol, f, self.model) for task in wanted for f in self.fractions]


class BetterByPatients(BetterClaim):
    """One arm is better than another, in every setting and comparison that is named."""

    rule: ClassVar[str] = PATIENT_RULE

    holds: Annotated[list[PatientPair], Field(min_length=1)]

    def check(self, sites: Collection[str], scores: Collection[str]) -> None:
        known(self, "score", [score for pair in self.holds for score in pair.scores or []], scores)

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        found, first = evidence.resamples, next(iter(evidence.kinds))
        tasks = list(dict.fromkeys(setting.task for setting in found.settings()))
        wanted = [
            (pair.better, pair.worse, setting, score)
            for pair in self.holds
            for setting in pair.settings(tasks)
            for score in pair.scores or [first]
        ]
        if not all(found.seeds(arm, setting) for *arms, setting, _ in wanted for arm in arms):
            return []
        return [compare_patients(found, *each) for each in wanted]


def compare_patients(
    scores: PatientResamples, better: str, worse: str, setting: Setting, score: str
) -> PatientComparison:
    """Compare two arms on the same resamples of patients and over the same seeds.

    The resamples are those of the test images alone: they speak of other patients. What another training would change
    is seen in the seeds.

    Raises:
        DataError: the two have different seeds.
    """
    high, low = (scores.resampled(arm, setting, score) for arm in (better, worse))
    if sorted(high) != sorted(low):
        raise DataError(f"'{better}' has the seeds {sorted(high)}, '{worse}' {sorted(low)}; run both with the same")
    differences = np.round([high[seed] - low[seed] for seed in sorted(high)], DECIMALS)  # (seeds, 1 + B)
    mean = differences.mean(0)
    resampled = mean[1:][np.isfinite(mean[1:])]
    ends, seeds = interval(resampled), tuple(float(x) for x in differences[:, 0])
    return PatientComparison(better, worse, setting, score, float(mean[0]), *ends, two_sided(resampled), seeds)


def two_sided(resampled: np.ndarray) -> float:
    """Twice the smaller tail at 0, ties in both; never 0, as a finite number of resamples cannot show that."""
    tails = [(np.count_nonzero(tail) + 1) / (len(resampled) + 1) for tail in (resampled <= 0, resampled >= 0)]
    return float(min(1.0, 2 * min(tails)))
