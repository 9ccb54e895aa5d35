"""Questions that classifiers answer, each learnt at one hospital."""

from pydantic import model_validator

from fedmed.errors import JobError
from fedmed.experiments.experiment_data import Names
from fedmed.experiments.hospital_images import Hospital
from fedmed.settings.yaml_model import YamlModel


class ExternalTest(YamlModel):
    """The same question asked at another hospital, as disease against none.

    Attributes:
        site: whose test images are scored; it trains nothing here.
        ours: the task's classes that count as disease; their probabilities are added.
        theirs: that hospital's labels that do; its other labels do not.
    """

    site: str
    ours: Names
    theirs: Names


class ClassTask(YamlModel):
    """One question that a classifier answers.

    Attributes:
        site: the one hospital whose training cases the classifier learns from. One alone: over several, a class that
            is frequent at one of them is learnt as that hospital's scanner.
        classes: at least two, all found at that hospital.
        external: a test at another hospital; None = none.
    """

    site: str
    classes: Names
    external: ExternalTest | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "ClassTask":
        if len(self.classes) < 2:
            raise ValueError("'classes' must be at least two")
        if self.external is not None and self.external.site == self.site:
            raise ValueError("'external: site' must be another hospital")
        if self.external is not None and not set(self.external.ours) < set(self.classes):
            raise ValueError("'external: ours' must be some of the task's classes, not all")
        return self

    def sites(self) -> list[str]:
        return [self.site, *([self.external.site] if self.external else [])]


def check_task(name: str, task: ClassTask, hospitals: dict[str, Hospital]) -> None:
    hospital = hospitals[task.site]
    for kind, cases in (("training", hospital.training), ("testing", hospital.testing)):
        if missing := [label for label in task.classes if label not in {case.label for case in cases}]:
            raise JobError(
                f"task '{name}': '{task.site}' has no {kind} case of '{missing[0]}'; a task's classes must all come "
                "from one hospital, otherwise a class is told by its scanner"
            )
    if task.external:
        theirs = {case.label for case in hospitals[task.external.site].testing}
        if not set(task.external.theirs) < theirs:
            raise JobError(
                f"task '{name}': the external test at '{task.external.site}' needs images with and without "
                f"{', '.join(task.external.theirs)}; its labels are {', '.join(sorted(map(str, theirs)))}"
            )
