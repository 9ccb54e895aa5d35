"""Layouts of tables: one is named by its class in the table's YAML and makes the files that a reader opens."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fedmed.settings.yaml_model import YamlModel
from research.runner.table_claim import Evidence


@dataclass(frozen=True)
class ShownArm:
    """A row."""

    name: str  # as in the scores
    group: str = ""  # heading over several rows; empty = none
    x: float | None = None  # place of the arm on a figure's horizontal axis
    row: str = ""  # what is equal in all its variants; empty = the name
    variant: str = ""  # which of these it is
    part: bool = False  # whether it is one of the results that another row is the mean of

    def __post_init__(self) -> None:
        if not self.row:
            object.__setattr__(self, "row", self.name)


@dataclass(frozen=True)
class ShownTable:
    """Everything that there is to show."""

    title: str  # heading of the tables and the figure
    arms: Sequence[ShownArm]  # rows, in their order
    sites: Sequence[str]  # columns, in their order, of a table of sites
    evidence: Evidence  # the scores


class TableLayout(YamlModel):
    """Base of all layouts; the fields are its settings in YAML."""

    def check(self, arms: Sequence[ShownArm], scores: Collection[str]) -> None:
        """Make sure, before anything runs, that a table of these arms and scores can be shown.

        Raises:
            JobError: it cannot; says why.
        """

    @abstractmethod
    def names(self) -> set[str]:
        """Every file that it may write; what is not written this time is removed."""

    @abstractmethod
    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        """Name -> content of each file that there is something to write in."""


def below_groups(arms: Sequence[ShownArm]) -> list[ShownArm | str]:
    """The arms, with the name of a group before the first of its arms."""
    rows: list[ShownArm | str] = []
    for before, arm in zip([None, *arms], arms, strict=False):
        if arm.group and (before is None or arm.group != before.group):
            rows.append(arm.group)
        rows.append(arm)
    return rows


def table_lines(arms: Sequence[ShownArm], cells: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Lines of a table of the arms that have cells, with a line for each group."""
    rows = below_groups([arm for arm in arms if arm.name in cells])
    empty = [""] * max(map(len, cells.values()), default=0)
    return [[f"*{row}*", *empty] if isinstance(row, str) else [row.name, *cells[row.name]] for row in rows]
