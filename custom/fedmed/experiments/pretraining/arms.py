"""A table of pre-training arms, as its YAML describes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmed.errors import JobError
from fedmed.experiments.arms import arms_of, chosen
from fedmed.experiments.checks import check_mapping, check_names, check_seeds, is_number, is_whole, require
from fedmed.experiments.federation import read_yaml

# Whether weights are self-adaptive, and whether metadata are exchanged after the warm-up.
FEDERATED = {"fedavg": (False, False), "mt": (False, True), "saa": (True, False), "fedmoco": (True, True)}
UNTRAINED = ("random", "grey_levels")
METHODS = (*FEDERATED, "oracle", "local", *UNTRAINED)
PROTOCOLS = ("linear", "finetune")
SKEWS = ("healthy", "diseased")


@dataclass(frozen=True)
class Arm:
    """One row.

    Attributes:
        name: as the table shows it.
        method: ``fedavg``, ``mt``, ``saa``, ``fedmoco``; ``oracle`` (all images at one node), ``local`` (each
            hospital by itself), ``random`` (no pre-training) or ``grey_levels`` (no network either: a linear
            classifier on :class:`fedmed.experiments.pretraining.grey_levels.GreyLevels`).
        group: heading over several rows.
        rounds: multiple of the budget's T.
        split: nodes that each hospital becomes, 1 or 2.
        sizes: share of each hospital's training images, 0 < share <= 1; empty = all.
        skew: ``healthy`` or ``diseased`` for each hospital: only such images; empty = all.
        fractions: shares of labels downstream, where they are not the table's.
        overrides: overridable settings of the bundle while pre-training.
        job: keys of :class:`fedmed.jobs.study.Study`.
    """

    name: str
    method: str
    group: str = ""
    rounds: float = 1
    split: int = 1
    sizes: Sequence[float] = ()
    skew: Sequence[str] = ()
    fractions: Sequence[float] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self._check()
        except JobError as error:
            raise JobError(f"arm '{self.name}': {error}") from error

    def _check(self) -> None:
        require(self.method in METHODS, "method", self.method, f"one of {', '.join(METHODS)}")
        require(isinstance(self.group, str), "group", self.group, "text")
        require(is_number(self.rounds) and self.rounds > 0, "rounds", self.rounds, "a multiple of T, above 0")
        require(self.split in (1, 2), "split", self.split, "1 or 2")
        sizes = isinstance(self.sizes, list | tuple) and all(is_number(s) and 0 < s <= 1 for s in self.sizes)
        require(sizes, "sizes", self.sizes, "a list of shares above 0, at most 1")
        skew = isinstance(self.skew, list | tuple) and set(self.skew) <= set(SKEWS)
        require(skew, "skew", self.skew, f"a list of {' and '.join(SKEWS)}")
        check_fractions(self.fractions, least=0)
        check_mapping("overrides", self.overrides, "settings of the bundle")
        check_mapping("job", self.job, "further settings of the job")


@dataclass(frozen=True)
class Protocol:
    """How encoders are scored.

    Attributes:
        kind: ``linear`` (frozen features, one layer) or ``finetune`` (all weights).
        fractions: shares of the training labels.
        draws: different choices of the labelled cases below 1; their scores are averaged.
        every: epochs between two scorings of a fine-tuned model, for the highest accuracy over epochs.
    """

    kind: str
    fractions: Sequence[float]
    draws: int = 1
    every: int = 5

    def __post_init__(self) -> None:
        require(self.kind in PROTOCOLS, "protocols", self.kind, f"one of {', '.join(PROTOCOLS)}")
        check_fractions(self.fractions, least=1)
        for key in ("draws", "every"):
            require(is_whole(getattr(self, key), 1), key, getattr(self, key), "a whole number, 1 or more")


@dataclass(frozen=True)
class Table:
    """Several arms and what they are compared by.

    Attributes:
        name: names the table's file and folder.
        title: what it shows.
        seeds: each arm is run once for each.
        arms: the rows.
        protocols: downstream protocols.
        figure: arms to draw; empty = all.
        claims: see :mod:`fedmed.experiments.pretraining.claims`.
    """

    name: str
    title: str
    seeds: Sequence[int]
    arms: Sequence[Arm]
    protocols: Sequence[Protocol]
    figure: Sequence[str] = ()
    claims: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        require(isinstance(self.title, str), "title", self.title, "text")
        check_seeds(self.seeds)
        require(bool(self.protocols), "protocols", self.protocols, "at least one")
        names = [arm.name for arm in self.arms]
        fixed = [arm.name for arm in self.arms if arm.method == "grey_levels"]
        if fixed and any(protocol.kind != "linear" for protocol in self.protocols):
            raise JobError(f"arm '{fixed[0]}': grey levels have no weights to fine-tune; use them with 'linear' alone")
        if self.figure:
            check_names("figure", self.figure)
        require(set(self.figure) <= set(names), "figure", self.figure, f"some of the arms: {', '.join(names)}")


def check_fractions(fractions: Any, least: int) -> None:
    good = isinstance(fractions, list | tuple) and all(is_number(f) and 0 < f <= 1 for f in fractions)
    good = good and len(set(fractions)) == len(fractions) >= least
    require(good, "fractions", fractions, "a list of different shares above 0, at most 1")


def load_table(path: Path) -> Table:
    """Read a table's YAML; ``defaults`` apply to every arm that does not say otherwise.

    Raises:
        JobError: missing or malformed file, unknown or missing key; names the arm.
    """
    content = read_yaml(path, "a table")
    content.pop("experiment", None)
    try:
        arms, protocols = arms_of(content, Arm), content.pop("protocols")
        check_mapping("protocols", protocols, "linear and finetune with their settings", of=Mapping)
        kinds = [Protocol(kind=kind, **own) for kind, own in protocols.items()]
        return Table(name=Path(path).stem, arms=arms, protocols=kinds, **content)
    except (KeyError, TypeError) as error:
        raise JobError(f"{path} is no table (keys title, seeds, protocols, arms): {error}") from error
    except JobError as error:
        raise JobError(f"{path}: {error}") from error


def only(table: Table, names: Sequence[str]) -> Table:
    """The table with some of its arms; claims that speak of others read ``not run``.

    Raises:
        JobError: it has no such arm.
    """
    arms = chosen(table.name, table.arms, names)
    drawn = [name for name in table.figure if name in names]
    return replace(table, arms=arms, figure=drawn)
