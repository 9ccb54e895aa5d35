"""An experiment: the arms of one table, as its YAML describes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmed.errors import JobError
from fedmed.experiments.federation import DEFAULT_NETWORK, read_yaml
from fedmed.federation.plan import TRAINING_ROLES


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
        job: arguments of :class:`fedmed.federation.package.JobSpec`, e.g. ``sharing``.
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
        if bool(self.train) == bool(self.pool):
            raise JobError(f"arm '{self.name}': give either 'train' (site: role) or 'pool' (sites)")
        for site, role in self.train.items():
            if role not in TRAINING_ROLES:
                raise JobError(f"arm '{self.name}': {site} has the role '{role}'; use {' or '.join(TRAINING_ROLES)}")


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


def load_table(path: Path) -> Table:
    """Read a table's YAML; ``defaults`` apply to every arm that does not say otherwise.

    Raises:
        JobError: missing or malformed file, unknown or missing key; names the arm.
    """
    content = read_yaml(path, "a table")
    try:
        defaults, listed = content.pop("defaults", {}), content.pop("arms")
        arms = [_arm(name, {**defaults, **own}) for name, own in listed.items()]
        return Table(name=Path(path).stem, arms=arms, **content)
    except (KeyError, TypeError, AttributeError) as error:
        raise JobError(f"{path} is no table (keys title, seeds, test, arms): {error}") from error
    except JobError as error:
        raise JobError(f"{path}: {error}") from error


def _arm(name: str, settings: Mapping[str, Any]) -> Arm:
    try:
        return Arm(name=name, **settings)
    except TypeError as error:
        raise JobError(f"arm '{name}': {error}") from error


def only(table: Table, names: Sequence[str]) -> Table:
    """The table with some of its arms, and the claims that speak of no others.

    Raises:
        JobError: it has no such arm.
    """
    known = [arm.name for arm in table.arms]
    if unknown := [name for name in names if name not in known]:
        raise JobError(f"table '{table.name}' has no arm '{unknown[0]}'; it has: {', '.join(known)}")
    if not names:
        raise JobError(f"no arm of table '{table.name}' is left")
    claims = [c for c in table.claims if {h[side] for h in c["holds"] for side in ("better", "worse")} <= set(names)]
    baseline = table.baseline if table.baseline in names else None
    return replace(table, arms=[arm for arm in table.arms if arm.name in names], claims=claims, baseline=baseline)
