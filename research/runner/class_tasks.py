"""Questions that classifiers answer, each learnt at one hospital: what they are learnt from and tested on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import model_validator

from fedmed.errors import JobError
from fedmed.settings.site import SiteConfig
from fedmed.settings.yaml_model import YamlModel
from research.runner.experiment_data import Names
from research.runner.hospital_images import Hospital, ImageCase
from research.runner.site_lists import with_list

DISEASE = ("none", "disease")  # classes of an external test


class ExternalTest(YamlModel):
    """The same question asked at another hospital, as disease against none."""

    site: str  # whose test images are scored; it trains nothing here
    ours: Names  # the task's classes that count as disease; their probabilities are added
    theirs: Names  # that hospital's labels that do; its other labels do not


class ClassTask(YamlModel):
    """One question that a classifier answers.

    It learns from one hospital alone: over several, a class that is frequent at one is learnt as that one's scanner.
    """

    site: str  # the hospital whose training cases it learns from
    classes: Names  # at least two, all found at that hospital
    external: ExternalTest | None = None  # a test at another hospital

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
        """The hospitals whose test images are scored."""
        return [self.site, *([self.external.site] if self.external else [])]

    def check(self, name: str, hospitals: Mapping[str, Hospital]) -> None:
        """Refuse (JobError) a task of classes that its hospitals have no images of."""
        hospital = hospitals[self.site]
        for kind, cases in (("training", hospital.training), ("testing", hospital.testing)):
            if missing := [label for label in self.classes if label not in {case.label for case in cases}]:
                raise JobError(
                    f"task '{name}': '{self.site}' has no {kind} case of '{missing[0]}'; a task's classes must all "
                    "come from one hospital, otherwise a class is recognised by its scanner"
                )
        if self.external:
            theirs = {case.label for case in hospitals[self.external.site].testing}
            if not set(self.external.theirs) < theirs:
                raise JobError(
                    f"task '{name}': the external test at '{self.external.site}' needs images with and without "
                    f"{', '.join(self.external.theirs)}; its labels are {', '.join(sorted(map(str, theirs)))}"
                )


@dataclass(frozen=True)
class ClassTest:
    """Test images and what they show."""

    site: SiteConfig  # their hospital, with them in its list ``testing``; at the task's own hospital also ``training``
    cases: Sequence[ImageCase]  # (n,), in the order of the list
    labels: Sequence[str]  # names of their classes, (n,)
    classes: Sequence[str]  # names, (C,)


@dataclass(frozen=True)
class Question:
    """A task with its tests."""

    name: str
    task: ClassTask
    tests: Mapping[str, ClassTest]  # ``internal``, and ``external`` if there is such a test

    def as_asked(self, test: str, probabilities: np.ndarray) -> np.ndarray:
        """Probabilities (n, C) of the task's classes as a test asks for them, float64.

        For an external test (n, 2): disease against none, disease being the sum over the classes that count as such.
        """
        if test == "internal" or self.task.external is None:
            return probabilities.astype(float)
        ill = [self.task.classes.index(name) for name in self.task.external.ours]
        disease = probabilities[:, ill].astype(float).sum(1)
        return np.stack([1 - disease, disease], axis=1)


def task_question(name: str, task: ClassTask, hospitals: Mapping[str, Hospital], folder: Path) -> Question:
    """Write a task's lists: its hospital's labelled cases, and nothing but test images of the other."""
    hospital = hospitals[task.site]
    tested = [case for case in hospital.testing if case.label in task.classes]
    learnt = [case for case in hospital.training if case.label in task.classes]
    lists = {
        key: [{"image": case.image, "label": case.label} for case in cases]
        for key, cases in (("training", learnt), ("testing", tested))
    }
    site = with_list(hospital.config, folder, lists, f"{task.site}-{name}")
    tests = {"internal": ClassTest(site, tested, [str(case.label) for case in tested], task.classes)}
    if task.external is not None:
        other, ill = hospitals[task.external.site], set(task.external.theirs)
        tested = [case for case in other.testing if case.label is not None]
        images = {"testing": [{"image": case.image} for case in tested]}
        site = with_list(other.config, folder, images, f"{other.config.site}-{name}-external")
        tests["external"] = ClassTest(site, tested, [DISEASE[case.label in ill] for case in tested], DISEASE)
    return Question(name, task, tests)
