"""An arm is a chain of links: a job that is run, then what is trained on its result, and so on."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd

from fedmed.experiments.experiment_data import ExperimentData
from fedmed.settings.site import SiteConfig
from fedmed.settings.yaml_model import YamlModel


@dataclass(frozen=True)
class Place:
    """For what an arm's chain is planned.

    Attributes:
        arm: its name, for messages.
        seed: of the run.
        data: what it is run on.
        test: sites that the table shows, as the table names them.
        runs: folder of all runs; equal steps of several arms and tables are found there once.
    """

    arm: str
    seed: int
    data: ExperimentData
    test: Sequence[str]
    runs: Path


class ChainStep(ABC):
    """What one link of one arm and seed makes; it is made once, and found again by its path.

    Attributes:
        path: file or folder; its name says all that the result depends on.
        sites: settings of the sites whose machine it uses.
        node: site that a step belongs to, of a link that makes one result for each; empty otherwise.
    """

    path: Path
    sites: Sequence[SiteConfig]
    node: str = ""

    @abstractmethod
    def missing(self) -> bool:
        """Whether it must be made, for the first time or because what it was made of has changed."""

    @abstractmethod
    def make(self) -> None:
        """Make it; a step that was stopped goes on where it can.

        Raises:
            FedMedError: it cannot be made.
        """

    @abstractmethod
    def scores(self) -> pd.DataFrame | None:
        """Its rows of the score table without ``arm``; None for a step that nothing is scored of."""


class ChainLink(YamlModel, ABC):
    """One link; its fields are its settings in YAML."""

    needs: ClassVar[type[ExperimentData]] = ExperimentData

    def lacking(self, data: ExperimentData) -> str | None:
        """What it needs and this data has not, in words; None = nothing."""
        return None

    @abstractmethod
    def steps(self, place: Place, before: ChainStep | None) -> list[ChainStep]:
        """What is to be made on one result of the link before, or on nothing.

        Raises:
            FedMedError: the link cannot be run on this data.
        """


@dataclass(frozen=True)
class ChainWork:
    """The first step of a chain and all that is made on it: what one process works on.

    Attributes:
        name: of the arm that asked first, with its seed, for messages.
        steps: each after the one that it is made on.
    """

    name: str
    steps: tuple[ChainStep, ...]

    @property
    def path(self) -> Path:
        return self.steps[0].path

    def missing(self) -> bool:
        return any(step.missing() for step in self.steps)


def chain_works(links: Sequence[ChainLink], place: Place) -> list[ChainWork]:
    """All work of one arm and seed."""
    works = []
    for first in links[0].steps(place, None):
        where = f" at {first.node}" if first.node else ""
        works.append(ChainWork(f"{place.arm}{where}, seed {place.seed}", (first, *_after(links[1:], place, first))))
    return works


def merged(works: Iterable[ChainWork]) -> list[ChainWork]:
    """Works with the same first step as one."""
    found: dict[Path, ChainWork] = {}
    for work in works:
        before = found.get(work.path, ChainWork(work.name, ()))
        steps = {step.path: step for step in (*before.steps, *work.steps)}
        found[work.path] = ChainWork(before.name, tuple(steps.values()))
    return list(found.values())


def do(work: ChainWork) -> None:
    """Make what is missing, in order: a first step that is made again takes with it what was made on it."""
    for step in work.steps:
        if step.missing():
            step.make()


def _after(links: Sequence[ChainLink], place: Place, before: ChainStep) -> list[ChainStep]:
    if not links:
        return []
    return [each for step in links[0].steps(place, before) for each in (step, *_after(links[1:], place, step))]
