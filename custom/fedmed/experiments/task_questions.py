"""What a classifier is asked: the lists that it is learnt from and tested on, and what the test images show."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedmed.experiments.class_tasks import ClassTask
from fedmed.experiments.hospital_images import Hospital, ImageCase
from fedmed.experiments.site_lists import write_list
from fedmed.settings.site import SiteConfig

DISEASE = ("none", "disease")  # classes of an external test


@dataclass(frozen=True)
class Truth:
    """What the images of one test show.

    Attributes:
        site: whose images.
        cases: names, (n,), in the order of the list.
        labels: names of their classes, (n,).
        patients: (n,).
        classes: names, (C,).
    """

    site: str
    cases: tuple[str, ...]
    labels: tuple[str, ...]
    patients: tuple[str, ...]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """A task with the lists that it is learnt from and tested on.

    Attributes:
        name, task: which.
        site: the task's hospital, with a list of ``training`` and ``testing``.
        external: the other one with ``testing`` alone; None = no such test.
        truths: ``internal``, ``external`` -> what the test images show.
    """

    name: str
    task: ClassTask
    site: SiteConfig
    external: SiteConfig | None
    truths: dict[str, Truth]


def task_question(name: str, task: ClassTask, hospitals: Mapping[str, Hospital], folder: Path) -> Question:
    """Write a task's lists: its hospital's labelled cases, and nothing but test images of the other."""
    own = hospitals[task.site]
    tested = [case for case in own.testing if case.label in set(task.classes)]
    lists = {"training": _entries(own.labelled(task.classes)), "testing": _entries(tested)}
    site = replace(own.config, datalist=write_list(folder, f"{task.site}-{name}", lists))
    truths = {"internal": _truth(task.site, tested, [case.label for case in tested], task.classes)}
    if task.external is None:
        return Question(name, task, site, None, truths)
    other, ill = hospitals[task.external.site], set(task.external.theirs)
    tested = [case for case in other.testing if case.label is not None]
    images = {"testing": [{"image": case.image} for case in tested]}
    external = replace(other.config, datalist=write_list(folder, f"{other.name}-{name}-external", images))
    truths["external"] = _truth(other.name, tested, [DISEASE[case.label in ill] for case in tested], DISEASE)
    return Question(name, task, site, external, truths)


def as_asked(task: ClassTask, test: str, probabilities: np.ndarray) -> np.ndarray:
    """Probabilities (n, C) as a test asks for them: at another hospital, of disease against none.

    Returns:
        (n, C) float64; (n, 2) for an external test, disease being the sum over the task's classes that count as such.
    """
    if test == "internal" or task.external is None:
        return probabilities.astype(float)
    ill = [task.classes.index(name) for name in task.external.ours]
    disease = probabilities[:, ill].astype(float).sum(1)
    return np.stack([1 - disease, disease], axis=1)


def _entries(cases: Iterable[ImageCase]) -> list[dict[str, str]]:
    return [{"image": case.image, "label": case.label} for case in cases]


def _truth(site: str, cases: Sequence[ImageCase], labels: Sequence[str], classes: Sequence[str]) -> Truth:
    images, patients = tuple(case.image for case in cases), tuple(case.patient for case in cases)
    return Truth(site, images, tuple(labels), patients, tuple(classes))
