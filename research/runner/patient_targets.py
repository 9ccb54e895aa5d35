"""Targets with a number for scores of many images together: a gain over the controls, no loss elsewhere."""

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from research.runner.experiment_data import Names
from research.runner.patient_claims import compare_patients
from research.runner.patient_scores import Setting
from research.runner.table_claim import ClaimFinding, Evidence
from research.runner.target_claims import ArmTarget, gain_over, not_lower

TARGET_RULE = """\
**Targets.** A gain is over the control with the higher {label} at that hospital. The model of the last round counts.

- **✓** of a gain: the mean difference is at least the wanted one, all seeds but one have its sign (of one or two seeds,
  all), and p < 0.05 in that direction, Holm-adjusted over all comparisons of this table. **✗**: as clearly the other
  way round. **n.s.**: neither. Where several hospitals are named, it must hold at each of them.
- **✓** of "not lower": the mean difference to every control, or where it says "in every seed" that of the worst seed,
  is above the limit; else **✗**. This is no test; the interval says how sure it is.

Difference: of the means over seeds. Interval (95 %) and p (two-sided) by the jackknife over the test list's patients,
each left out once with all {unit}s of it, the same one of both arms. They speak of other patients of the same hospital;
what another training would change is seen in the seeds alone.
"""


class PatientTarget(ArmTarget):
    """Base: what the images of a hospital's test list show of an ``arm`` in its last round.

    Attributes:
        at: the hospitals: ``internal`` are those whose labels were learned, ``external`` all others, in every turn.
    """

    rule: ClassVar[str] = TARGET_RULE

    at: Annotated[list[Literal["internal", "external"]], Field(min_length=1)]

    def findings(self, evidence: Evidence) -> list[ClaimFinding]:
        scores, arms = evidence.patients, [self.arm, *self.others()]
        settings = self.settings(scores.settings())
        if not all(scores.seeds(arm, setting) for arm in arms for setting in settings):
            return []
        return [
            each
            for setting in settings
            for each in self.judged([self._against(evidence, other, setting) for other in self.others()])
        ]

    def settings(self, known: Collection[Setting]) -> list[Setting]:
        """Settings in which it is judged."""
        return [one for one in known if one.list in self.at and one.model == "last"]

    def _against(self, evidence: Evidence, other: str, at: Setting) -> ClaimFinding:
        finding = compare_patients(evidence.patients, self.arm, other, at, self.score or next(iter(evidence.kinds)))
        said = {**dict(finding.cells), "setting": at.protocol}
        return replace(finding, cells=tuple(said.items()))


class PatientGain(PatientTarget):
    """The arm gains at least so much over the better of several controls, in all seeds but one, with p < 0.05."""

    over: Names
    at_least: Annotated[float, Field(ge=0)]

    def others(self) -> list[str]:
        return self.over

    def judged(self, compared: list[ClaimFinding]) -> list[ClaimFinding]:
        return [gain_over(compared, self.at_least)]


class PatientNotLower(PatientTarget):
    """The arm is at most ``margin`` lower than each of some others, in the mean or ``in_every_seed``."""

    than: Names
    margin: Annotated[float, Field(ge=0)]
    in_every_seed: bool = False

    def others(self) -> list[str]:
        return self.than

    def judged(self, compared: list[ClaimFinding]) -> list[ClaimFinding]:
        shown = ("than", "task", "test", "setting", "score", "difference", "95 %")
        return [not_lower(each, self.arm, self.margin, self.in_every_seed, shown) for each in compared]
