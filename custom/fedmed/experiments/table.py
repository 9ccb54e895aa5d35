"""An experiment: the arms of one table, as its YAML describes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmed.errors import JobError
from fedmed.experiments.arms import arms_of, chosen
from fedmed.experiments.checks import (
    check_mapping,
    check_names,
    check_overrides,
    check_seeds,
    is_number,
    is_whole,
    require,
)
from fedmed.experiments.federation import DEFAULT_NETWORK, read_yaml
from fedmed.jobs.plan import TRAINING_ROLES


@dataclass(frozen=True)
class Arm:
    """One row of a table. Sites are named as the table names them (``site_1``).

    Attributes:
        name: as the table shows it.
        train: site -> ``supervised`` or ``unsupervised``; the others are only tested.
        pool: instead of ``train``: labelled sites whose cases are trained on together, as if sharing were allowed.
        group: heading over several rows.
        x: place on the axis of a figure.
        batch: factor of the bundle's batch size.
        interval: factor of the budget's aggregation interval.
        learning_rate: unsupervised learning rate as a fraction of the supervised one; None = the bundle's.
        warm_start: whether sites without labels join late.
        network: entry of the federation's ``networks``.
        weights: site -> user weight.
        overrides: role -> overridable settings of the bundle.
        job: keys of :class:`fedmed.jobs.study.Study`, e.g. ``sharing``.
    """

    name: str
    train: Mapping[str, str] = field(default_factory=dict)
    pool: Sequence[str] = ()
    group: str = ""
    x: float | None = None
    batch: int = 1
    interval: float = 1
    learning_rate: float | None = None
    warm_start: bool = True
    network: str = DEFAULT_NETWORK
    weights: Mapping[str, float] = field(default_factory=dict)
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self._check()
        except JobError as error:
            raise JobError(f"arm '{self.name}': {error}") from error

    def _check(self) -> None:
        check_mapping("train", self.train, "sites with their roles, such as {site_1: supervised}")
        if bool(self.train) == bool(self.pool):
            raise JobError("give either 'train' (site: role) or 'pool' (sites)")
        for site, role in self.train.items():
            if role not in TRAINING_ROLES:
                raise JobError(f"{site} has the role '{role}'; use {' or '.join(TRAINING_ROLES)}")
        if self.pool:
            check_names("pool", self.pool)
        require(isinstance(self.group, str), "group", self.group, "text")
        require(self.x is None or is_number(self.x), "x", self.x, "a number")
        require(is_whole(self.batch, 1), "batch", self.batch, "a whole number, 1 or more")
        require(is_number(self.interval) and self.interval > 0, "interval", self.interval, "a number above 0")
        require(isinstance(self.warm_start, bool), "warm_start", self.warm_start, "true or false")
        require(isinstance(self.network, str), "network", self.network, "a name of the federation's 'networks'")
        check_mapping("weights", self.weights, "sites with numbers, such as {site_2: 0.5}")
        check_overrides(self.overrides)
        check_mapping("job", self.job, "further settings of the job")
        if (rate := self.learning_rate) is not None:
            require(
                is_number(rate) and rate >= 0, "learning_rate", rate, "a number, 0 or more (write 1.0e-2, not 1e-2)"
            )
            if "unsupervised" not in self.train.values():
                raise JobError("'learning_rate' is that of unsupervised sites, but the arm has none; leave it out")


@dataclass(frozen=True)
class Table:
    """Arms that share sites, seeds and budget.

    Attributes:
        name: of the table's file and folder.
        title: what it shows.
        seeds: each arm is run once for each.
        test: sites whose test cases every arm is scored on.
        arms: the rows.
        baseline: arm that figures draw as a line.
        claims: see :mod:`fedmed.experiments.claims`.
        x_label, x_log: axis of a figure over the arms' ``x``.
    """

    name: str
    title: str
    seeds: Sequence[int]
    test: Sequence[str]
    arms: Sequence[Arm]
    baseline: str | None = None
    claims: Sequence[Mapping[str, Any]] = ()
    x_label: str | None = None
    x_log: bool = False

    def __post_init__(self) -> None:
        require(isinstance(self.title, str), "title", self.title, "text")
        check_seeds(self.seeds)
        check_names("test", self.test)
        require(isinstance(self.claims, list | tuple), "claims", self.claims, "a list")
        require(self.x_label is None or isinstance(self.x_label, str), "x_label", self.x_label, "text")
        require(isinstance(self.x_log, bool), "x_log", self.x_log, "true or false")
        names = [arm.name for arm in self.arms]
        known = self.baseline is None or self.baseline in names
        require(known, "baseline", self.baseline, f"one of the arms: {', '.join(names)}")


def load_table(path: Path) -> Table:
    """Read a table's YAML; ``defaults`` apply to every arm that does not say otherwise.

    Raises:
        JobError: missing or malformed file, unknown or missing key; names the arm.
    """
    content = read_yaml(path, "a table")
    try:
        arms = arms_of(content, Arm)
        return Table(name=Path(path).stem, arms=arms, **content)
    except (KeyError, TypeError) as error:
        raise JobError(f"{path} is no table (keys title, seeds, test, arms): {error}") from error
    except JobError as error:
        raise JobError(f"{path}: {error}") from error


def only(table: Table, names: Sequence[str]) -> Table:
    """The table with some of its arms, and the claims that speak of no others.

    Raises:
        JobError: it has no such arm.
    """
    arms = chosen(table.name, table.arms, names)
    if not names:
        raise JobError(f"no arm of table '{table.name}' is left")
    claims = [c for c in table.claims if {h[side] for h in c["holds"] for side in ("better", "worse")} <= set(names)]
    baseline = table.baseline if table.baseline in names else None
    return replace(table, arms=arms, claims=claims, baseline=baseline)
