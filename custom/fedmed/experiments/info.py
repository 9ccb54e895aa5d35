"""What an experiment's tables and figures must know beside its scores."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fedmed.errors import JobError


@dataclass(frozen=True)
class ArmInfo:
    """One row of the table.

    Attributes:
        name: as in the scores.
        group: heading above the rows of this kind.
        x: place of the arm on a figure's horizontal axis.
    """

    name: str
    group: str | None = None
    x: float | None = None


@dataclass(frozen=True)
class TableInfo:
    """An experiment as a reader sees it.

    Attributes:
        name: of the experiment; names its folder.
        title: heading of the tables and the figure.
        arms: rows, in their order.
        sites: columns, in their order.
        baseline: arm that the figure draws as a line to compare with.
        claims: the YAML's ``claims`` as they are; see :mod:`fedmed.experiments.claims`.
        x_label: what ``x`` is. With it the figure has Dice against x; without it a row an arm.
        x_log: logarithmic x.

    Raises:
        JobError: a name twice, an unknown baseline, no x at all, one x twice, or x <= 0 on a logarithmic axis.
    """

    name: str
    title: str
    arms: Sequence[ArmInfo]
    sites: Sequence[str]
    baseline: str | None = None
    claims: Sequence[Any] = field(default_factory=list)
    x_label: str | None = None
    x_log: bool = False

    def __post_init__(self) -> None:
        for kind, names in (("arm", [arm.name for arm in self.arms]), ("site", list(self.sites))):
            if twice := {name for name in names if names.count(name) > 1}:
                raise JobError(f"experiment '{self.name}': {kind} '{min(twice)}' is there twice; give each one name")
        if self.baseline is not None and self.baseline not in [arm.name for arm in self.arms]:
            raise JobError(f"experiment '{self.name}': baseline '{self.baseline}' is none of its arms")
        if self.x_label is not None:
            self._check_x()

    def _check_x(self) -> None:
        xs = [arm.x for arm in self.arms if arm.x is not None]
        if not xs:
            raise JobError(
                f"experiment '{self.name}': x_label '{self.x_label}', but no arm has an x; give the arms one"
            )
        if len(set(xs)) < len(xs):
            raise JobError(f"experiment '{self.name}': two arms have the same x; the figure needs different ones")
        if self.x_log and min(xs) <= 0:
            raise JobError(
                f"experiment '{self.name}': x = {min(xs)} has no place on a logarithmic axis; leave out x_log"
            )

    def in_groups(self) -> list[tuple[str | None, list[ArmInfo]]]:
        """(group, its arms), arms without a group first, groups as they first appear."""
        found: dict[str | None, list[ArmInfo]] = {None: []}
        for arm in self.arms:
            found.setdefault(arm.group or None, []).append(arm)
        return [(group, arms) for group, arms in found.items() if arms]
