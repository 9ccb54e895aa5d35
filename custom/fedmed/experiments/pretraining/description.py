"""The data of a pre-training experiment: its hospitals, the downstream tasks inside them, and what training costs."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fedmed.errors import JobError
from fedmed.experiments.checks import check_mapping, check_names, check_seeds, is_number, is_whole, require
from fedmed.experiments.federation import read_yaml

CHECKOUT = Path(__file__).resolve().parents[4]
STAGES = ("pretrain", "linear", "finetune")


@dataclass(frozen=True)
class External:
    """The same question asked at another hospital, as disease against none.

    Attributes:
        site: whose test images are scored; it trains nothing here.
        ours: the task's classes that count as disease; their probabilities are added.
        theirs: that hospital's labels that do; its other labels do not.
    """

    site: str
    ours: Sequence[str]
    theirs: Sequence[str]


@dataclass(frozen=True)
class Task:
    """One downstream question.

    Attributes:
        name: in tables.
        site: the one hospital whose training cases the classifier learns from. One alone: over several, a class that
            is frequent at one of them is learnt as that hospital's scanner.
        classes: at least two, all found at that hospital.
        external: a test at another hospital; None = none.
    """

    name: str
    site: str
    classes: Sequence[str]
    external: External | None = None

    def __post_init__(self) -> None:
        where = f"tasks: {self.name}"
        one = isinstance(self.site, str)
        require(one, f"{where}: site", self.site, "one hospital: classes of several would be told by their scanners")
        check_names(f"{where}: classes", self.classes)
        require(len(self.classes) > 1, f"{where}: classes", self.classes, "at least two")
        if self.external is not None:
            differs = self.external.site != self.site
            require(differs, f"{where}: external: site", self.external.site, "another hospital")
            check_names(f"{where}: external: ours", self.external.ours)
            check_names(f"{where}: external: theirs", self.external.theirs)
            some = set(self.external.ours) < set(self.classes)
            require(some, f"{where}: external: ours", self.external.ours, "some of the task's classes, not all")


@dataclass(frozen=True)
class Budget:
    """What one pre-training costs.

    Attributes:
        rounds: T; an arm may ask for a multiple.
        warm_up: t_w, rounds before metadata are exchanged; the same whatever T is.
        epochs: local epochs of a round.
        milestones: shares of an arm's rounds at which the learning rate falls; the paper's are 120 and 160 of 200.
    """

    rounds: int
    warm_up: int
    epochs: float = 1
    milestones: Sequence[float] = (0.6, 0.8)

    def __post_init__(self) -> None:
        require(is_whole(self.rounds, 1), "budget: rounds", self.rounds, "a whole number, 1 or more")
        good = is_whole(self.warm_up, 0) and self.warm_up <= self.rounds
        require(good, "budget: warm_up", self.warm_up, f"a whole number of rounds, at most {self.rounds}")
        require(is_number(self.epochs) and self.epochs > 0, "budget: epochs", self.epochs, "a number above 0")
        good = isinstance(self.milestones, list | tuple) and all(is_number(m) and m > 0 for m in self.milestones)
        require(good, "budget: milestones", self.milestones, "a list of shares of the rounds")


@dataclass(frozen=True)
class Description:
    """What an experiment needs to know of the data.

    Attributes:
        name: for folders and headings.
        sites: hospital -> ``{}`` for a site with a YAML and a datalist of its own, or ``{folder, table}`` below
            ``root``. A table's sizes and skews name nodes by their order here.
        tasks: downstream tasks, all scored for every arm.
        budget: rounds.
        overlays: of the bundle, before those of the stage.
        overrides: ``pretrain``, ``linear`` or ``finetune`` -> overridable settings of the bundle.
        healthy: hospital -> its labels that mean no disease; only a label-skewed arm reads them.
        root: folder of the data, relative to the checkout; ``$FEDMED_DATA`` takes its place.
        seeds: used unless the command line names others; None = the table's own.
        bundle: what is trained.
        threads: CPU threads of a run.
        device: ``cpu``, ``cuda`` or ``auto``.
        job: further keys of :class:`fedmed.jobs.study.Study`.
    """

    name: str
    sites: Mapping[str, Mapping[str, str]]
    tasks: Sequence[Task]
    budget: Budget
    overlays: Sequence[str] = ("demo",)
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    healthy: Mapping[str, Sequence[str]] = field(default_factory=dict)
    root: str | None = None
    seeds: Sequence[int] | None = None
    bundle: str = "cxr_classification"
    threads: int = 1
    device: str = "cpu"
    job: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_mapping("sites", self.sites, "hospitals, {} for one with a YAML of its own", of=Mapping)
        for site, where in self.sites.items():
            good = not where or set(where) == {"folder", "table"}
            require(good, f"sites: {site}", dict(where), "{}, or {folder: …, table: labels.csv} below 'root'")
            require(not where or self.root is not None, "root", self.root, "the folder that the sites' lie in")
        check_names("overlays", self.overlays) if self.overlays else None
        stages = isinstance(self.overrides, Mapping) and set(self.overrides) <= set(STAGES)
        require(stages, "overrides", self.overrides, f"settings below {', '.join(STAGES)}")
        check_mapping("healthy", self.healthy, "hospitals with their labels without disease", of=list)
        if self.seeds is not None:
            check_seeds(self.seeds)
        require(is_whole(self.threads, 1), "threads", self.threads, "a whole number, 1 or more")
        for task in self.tasks:
            for site in (task.site, *([task.external.site] if task.external else [])):
                require(site in self.sites, f"tasks: {task.name}", site, f"one of the sites: {', '.join(self.sites)}")

    def data_root(self) -> Path:
        """Folder of the images.

        Raises:
            JobError: it is not there; says how to name another one.
        """
        given = os.environ.get("FEDMED_DATA")
        path = Path(given).expanduser() if given else CHECKOUT / (self.root or "")
        if not path.is_dir():
            named = "FEDMED_DATA names it" if given else "set FEDMED_DATA to the folder that holds the images"
            raise JobError(f"the data of '{self.name}' is not there: {path} is no folder; {named}")
        return path.resolve()


def load_description(path: Path) -> Description:
    """Read a YAML such as ``experiments/data/cxr_real.yaml``.

    Raises:
        JobError: missing or malformed file, unknown or missing key, or a task over several hospitals.
    """
    content = read_yaml(path, "the description of a pre-training experiment's data")
    content.pop("experiment", None)
    try:
        budget, tasks = Budget(**content.pop("budget")), content.pop("tasks")
        check_mapping("tasks", tasks, "names with site, classes and, if there is one, external", of=Mapping)
        listed = [_task(str(name), own) for name, own in tasks.items()]
        require(bool(listed), "tasks", tasks, "at least one task")
        return Description(name=Path(path).stem, budget=budget, tasks=listed, **content)
    except (KeyError, TypeError) as error:
        known = ", ".join(each.name for each in fields(Description) if each.name != "name")
        raise JobError(f"{path}: needs sites, tasks and budget, and knows {known}: {error}") from error
    except JobError as error:
        raise JobError(f"{path}: {error}") from error


def _task(name: str, own: Mapping[str, Any]) -> Task:
    external = External(**own["external"]) if own.get("external") else None
    return Task(**{"name": name, **own, "external": external})
