"""One arm is better than another over the patients of a test list, with other shares of labels and tasks."""

from collections.abc import Collection, Iterator, Mapping
from itertools import product
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedmed.errors import DataError
from fedmed.training.jackknife import estimate
from research.runner.experiment_data import Names, Shares
from research.runner.paired_statistics import DECIMALS
from research.runner.patient_scores import PatientScores, Setting
from research.runner.table_claim import P_COLUMN, ArmPair, BetterClaim, ClaimFinding, Evidence, signs
from research.runner.words_of_tables import cannot_tell, percent, signed, span

PATIENT_RULE = """\
- **✓** holds: every comparison has the claimed sign in the mean and in every seed, and p < 0.05.
- **✗** does not hold: at least one comparison is as clearly the other way round.
- **n.s.** not significant: neither. The table does not decide.
- **reported**: numbers only. **not run**: an arm was not run in one of the settings.

Difference: of the means over seeds, each seed's own a mean over the choices of labelled cases. Interval (95 %) and p
(two-sided) by the jackknife over the test list's patients, each left out once, the same one of both arms; an interval
holds 0 where its p is 0.05 or more, before p is Holm-adjusted over all comparisons of this table. They speak of other
patients of the same hospital; what another training would change is seen in the seeds alone: those that have the
claimed sign are counted. Weights and r are of the rounds themselves, and hold if they do in every seed.
"""


class PatientPair(ArmPair):
    """The arm ``better`` is above the arm ``worse``, in every :class:`Setting` that the fields name."""

    protocol: str
    fractions: Shares
    scores: Names | None = None  # of the table's; None = its first
    list: Literal["internal", "external"] = "internal"
    model: Literal["last", "highest"] = "last"
    tasks: Names | None = None  # None = all

    def settings(self, tasks: Collection[str]) -> Iterator[Setting]:
        """The settings, of all these tasks unless it names its own."""
        for task, fraction in product(tasks if self.tasks is None else self.tasks, self.fractions):
            yield Setting(task, self.list, self.protocol, fraction, self.model)


class BetterByPatients(BetterClaim):
    """One arm is better than another, in every setting and comparison that is named."""

    rule: ClassVar[str] = PATIENT_RULE

    holds: Annotated[list[PatientPair], Field(min_length=1)]

    def uses(self) -> Mapping[str, Collection[str]]:
        return {**super().uses(), "score": [score for pair in self.holds for score in pair.scores or []]}

    def _wanted(self, evidence: Evidence) -> list[tuple[str, str, Setting, str]]:
        first = next(iter(evidence.kinds))
        tasks = list(dict.fromkeys(setting.task for setting in evidence.patients.settings()))
        return [
            (pair.better, pair.worse, setting, score)
            for pair in self.holds
            for setting in pair.settings(tasks)
            for score in pair.scores or [first]
        ]

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        scores, wanted = evidence.patients, self._wanted(evidence)
        if not all(scores.seeds(arm, setting) for *arms, setting, _ in wanted for arm in arms):
            return []
        return [compare_patients(scores, *each) for each in wanted]


def compare_patients(scores: PatientScores, better: str, worse: str, at: Setting, score: str) -> ClaimFinding:
    """Compare two arms on the same patients and over the same seeds.

    Interval and two-sided p are the jackknife's, of the mean over the seeds: they speak of other patients. What another
    training would change is seen in the seeds.

    Raises:
        DataError: the two have different seeds.
    """
    high, low = (scores.left_out(arm, at, score) for arm in (better, worse))
    if sorted(high) != sorted(low):
        raise DataError(f"'{better}' has the seeds {sorted(high)}, '{worse}' {sorted(low)}; run both with the same")
    differences = np.round([high[seed] - low[seed] for seed in sorted(high)], DECIMALS)  # (seeds, 1 + N)
    mean = differences.mean(0)
    difference, interval = float(mean[0]), estimate(mean)
    ends, p = ((None, None), None) if interval is None else (interval.interval(), interval.p_differs())
    seeds = tuple(float(x) for x in differences[:, 0])
    highest = ", highest epoch" if at.model == "highest" else ""
    cells = {
        "claimed better": better,
        "than": worse,
        "task": at.task,
        "test": at.list,
        "setting": f"{at.protocol}, {percent(at.fraction)}{highest}",
        "score": score,
        "difference": signed(difference, 3),
        "95 %": span(*ends),
        P_COLUMN: "",
    }
    record = {"better": better, "worse": worse, **vars(at), "score": score, "difference": difference}
    record |= {"low": ends[0], "high": ends[1], **signs(seeds), "p": p}
    few = cannot_tell(len(mean) - 1, "patient") if interval is None else ""
    return ClaimFinding("Comparisons", tuple(cells.items()), seeds, tuple(record.items()), p, difference, too_few=few)
