"""What is trained on each encoder, and what the test images show."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedmed.experiments.pretraining.arms import Arm, Protocol, Table
from fedmed.experiments.pretraining.cases import Case, Hospital
from fedmed.experiments.pretraining.description import Description, Task
from fedmed.experiments.pretraining.downstream import Evaluation
from fedmed.experiments.pretraining.scores import Truth
from fedmed.experiments.sites import write_list
from fedmed.settings.site import SiteConfig

DISEASE = ("none", "disease")  # classes of an external test


def evaluations(
    arm: Arm,
    table: Table,
    description: Description,
    hospitals: Mapping[str, Hospital],
    seed: int,
    folder: Path,
) -> list[Evaluation]:
    """Every classifier that a table trains on one encoder of an arm.

    Args:
        arm, table, description, hospitals: what is asked.
        seed: of the run.
        folder: of all runs; the tasks' lists are written below it.
    """
    sites = {task.name: task_sites(task, hospitals, folder / "lists") for task in description.tasks}
    return [
        Evaluation(
            task=task.name,
            site=sites[task.name][0],
            external=sites[task.name][1],
            classes=tuple(task.classes),
            bundle=description.bundle,
            overlays=tuple(description.overlays),
            overrides=dict(description.overrides.get(protocol.kind, {})),
            protocol=protocol,
            grey_levels=arm.method == "grey_levels",
            fraction=fraction,
            draw=draw,
            seed=seed,
        )
        for protocol in table.protocols
        for task in description.tasks
        for fraction in fractions_of(arm, protocol)
        for draw in range(protocol.draws if fraction < 1 else 1)
    ]


def fractions_of(arm: Arm, protocol: Protocol) -> Sequence[float]:
    return list(arm.fractions or protocol.fractions)


def task_sites(task: Task, hospitals: Mapping[str, Hospital], folder: Path) -> tuple[SiteConfig, SiteConfig | None]:
    """The task's hospital with its labelled cases, and the other one with nothing but test images."""
    hospital = hospitals[task.site]
    testing = _entries(case for case in hospital.testing if case.label in set(task.classes))
    lists = {"training": _entries(hospital.labelled(task.classes)), "testing": testing}
    own = replace(hospital.config, datalist=write_list(folder, f"{task.site}-{task.name}", lists))
    if task.external is None:
        return own, None
    other = hospitals[task.external.site]
    images = {"testing": [{"image": case.image} for case in _external(task, hospitals)]}
    return own, replace(other.config, datalist=write_list(folder, f"{other.name}-{task.name}-external", images))


def truths(description: Description, hospitals: Mapping[str, Hospital]) -> dict[tuple[str, str], Truth]:
    """(task, test) -> what the test images show, in the order of the lists of :func:`task_sites`."""
    found = {}
    for task in description.tasks:
        cases = [case for case in hospitals[task.site].testing if case.label in set(task.classes)]
        found[task.name, "internal"] = _truth(cases, [list(task.classes).index(c.label) for c in cases], task.classes)
        if task.external:
            cases = _external(task, hospitals)
            ill = set(task.external.theirs)
            found[task.name, "external"] = _truth(cases, [int(case.label in ill) for case in cases], DISEASE)
    return found


def of_test(task: Task, test: str, probabilities: np.ndarray) -> np.ndarray:
    """Probabilities (n, C) as the test's truth asks for them: at another hospital, of disease against none.

    Returns:
        (n, C) float64; (n, 2) for an external test, disease being the sum over the task's classes that count as such.
    """
    if test == "internal" or task.external is None:
        return probabilities.astype(float)
    ill = [list(task.classes).index(name) for name in task.external.ours]
    disease = probabilities[:, ill].astype(float).sum(1)
    return np.stack([1 - disease, disease], axis=1)


def _external(task: Task, hospitals: Mapping[str, Hospital]) -> list[Case]:
    return [case for case in hospitals[task.external.site].testing if case.label is not None]


def _entries(cases) -> list[dict[str, str]]:
    return [{"image": case.image, "label": case.label} for case in cases]


def _truth(cases: Sequence[Case], labels: Sequence[int], classes: Sequence[str]) -> Truth:
    names = tuple(case.image for case in cases)
    return Truth(names, np.array(labels), np.array([case.patient for case in cases]), tuple(classes))
