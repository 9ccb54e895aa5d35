"""Arms as a table's YAML lists them, of whatever kind of experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol, TypeVar

from fedmed.errors import JobError
from fedmed.experiments.checks import check_mapping


class Named(Protocol):
    """Anything with a name.

    Attributes:
        name: as a table shows it.
    """

    name: str


Arm = TypeVar("Arm", bound=Named)


def arms_of(content: dict[str, Any], kind: type[Arm]) -> list[Arm]:
    """Take ``arms`` and ``defaults``, which apply to every arm that does not say otherwise, out of a table's YAML.

    Args:
        content: of the YAML; the two keys are removed.
        kind: dataclass of an arm, with ``name``.

    Raises:
        JobError: a malformed arm; names it.
        KeyError: there are no arms.
    """
    defaults, listed = content.pop("defaults", {}), content.pop("arms")
    check_mapping("defaults", defaults, "settings of all arms")
    check_mapping("arms", listed, "names with settings, {} for none", of=Mapping)
    return [_arm(kind, str(name), {**defaults, **own}) for name, own in listed.items()]


def chosen(table: str, arms: Sequence[Arm], names: Sequence[str]) -> list[Arm]:
    """The arms of these names, in the table's order.

    Raises:
        JobError: the table has no such arm.
    """
    known = [arm.name for arm in arms]
    if unknown := [name for name in names if name not in known]:
        raise JobError(f"table '{table}' has no arm '{unknown[0]}'; it has: {', '.join(known)}")
    return [arm for arm in arms if arm.name in names]


def _arm(kind: type[Arm], name: str, settings: Mapping[str, Any]) -> Arm:
    known = [each.name for each in fields(kind) if each.name != "name"]
    if unknown := [key for key in settings if key not in known]:
        raise JobError(f"arm '{name}' has an unknown key '{unknown[0]}'; known are {', '.join(known)}")
    return kind(name=name, **settings)
