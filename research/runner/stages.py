"""An arm is a chain of stages: a job that is run, then what is trained on its result, and so on."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from fedmed.settings.site import SiteConfig
from fedmed.settings.yaml_model import YamlModel
from research.runner.experiment_data import ExperimentData


@dataclass(frozen=True)
class Place:
    """For what an arm's chain is planned."""

    arm: str  # its name, for messages
    seed: int
    data: Any  # what it is run on, of the kind that the arm's stages need
    test: Sequence[str]  # sites that the table shows, as the table names them
    runs: Path  # folder of all runs; equal steps of several arms and tables are found there once

    @property
    def lists(self) -> Path:
        """Folder of the datalists that are written for runs."""
        return self.runs / "lists"


class StageStep:
    """Result of one stage of one arm and seed; it is made once, and found again by its path.

    This base stands for what is there without any work.
    """

    path: Path  # file or folder; its name says all that the result depends on
    node: str = ""  # site that it belongs to, of a stage that makes one result for each
    apart: ClassVar[bool] = (
        False  # whether chains that begin alike and differ in such a step are done by several processes
    )
    start: "StageStep | None" = None  # the step whose model it goes on with: its scores then stand for that one's

    def machines(self) -> Sequence[SiteConfig]:
        """Settings of the sites whose machine it uses."""
        return ()

    def missing(self) -> bool:
        """Tell whether it must be made, for the first time or because what it was made of has changed."""
        return False

    def made_by_other_code(self) -> Path | None:
        """Folder of the same, made by another version of FedMed or of the bundle; None if there is none."""
        return None

    def make(self) -> None:
        """Make it, or raise a FedMedError; a step that was stopped goes on where it can."""

    def scores(self) -> pd.DataFrame | None:
        """Its rows of the score table without ``arm``; None for a step that nothing is scored of."""
        return None


class Stage(YamlModel, ABC):
    """One stage; its fields are its settings in YAML."""

    needs: ClassVar[type[ExperimentData]] = ExperimentData

    def lacking(self, data: Any) -> str | None:
        """Say what it needs and this data, which is of the right kind, does not have; None = nothing."""
        return None

    @abstractmethod
    def steps(self, place: Place, before: StageStep | None) -> Sequence[StageStep]:
        """Steps on one result of the stage before, or on nothing; a FedMedError if that is impossible."""


@dataclass(frozen=True)
class ArmWork:
    """The first step of a chain and all that is made on it: what one process works on."""

    arm: str  # its name
    name: str  # of the arm with its seed, for messages; the first arm's where several have the same work
    steps: tuple[StageStep, ...]  # each after the one that it is made on

    @property
    def path(self) -> Path:
        """By which equal works are found: that of the last step that is worth a process, or of the first one."""
        return next((step.path for step in reversed(self.steps) if step.apart), self.steps[0].path)

    def do(self) -> None:
        """Make what is missing, in order: a first step that is made again takes with it what was made on it.

        Where several processes need the same step, one makes it and the others wait.
        """
        for step in self.steps:
            if step.missing():
                step.make()


def arm_works(stages: Sequence[Stage], place: Place) -> list[ArmWork]:
    """All work of one arm and seed."""
    works = []
    for first in stages[0].steps(place, None):
        where = f" at {first.node}" if first.node else ""
        steps = (first, *_after(stages[1:], place, first))
        works.append(ArmWork(place.arm, f"{place.arm}{where}, seed {place.seed}", steps))
    return works


def merged(works: Iterable[ArmWork]) -> list[ArmWork]:
    """Works with the same path as one."""
    planned: dict[Path, ArmWork] = {}
    for work in works:
        before = planned.setdefault(work.path, work)
        steps = {step.path: step for step in (*before.steps, *work.steps)}
        planned[work.path] = replace(before, steps=tuple(steps.values()))
    return list(planned.values())


def _after(stages: Sequence[Stage], place: Place, before: StageStep) -> list[StageStep]:
    if not stages:
        return []
    return [each for step in stages[0].steps(place, before) for each in (step, *_after(stages[1:], place, step))]
