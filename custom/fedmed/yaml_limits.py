"""Limits of size and depth of a YAML text, looked at before anything is built of it.

A few lines with aliases can stand for gigabytes, and brackets in one another take PyYAML time that grows with their
square. Every YAML that FedMed reads itself passes here: studies, sites' and servers' settings, project files and the
configurations of bundles.
"""

from dataclasses import dataclass, field
from typing import Any

import yaml

LONGEST = 1 << 20  # characters, and bytes of a file
DEEPEST = 20  # lists and mappings in one another
MOST = 20_000  # values and keys, those that aliases repeat counted each time
LONGEST_VALUE = 20_000  # characters of one value
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where it is there, is ten times quicker


class TooLarge(yaml.MarkedYAMLError):
    """A YAML text is beyond one of the limits; ``problem`` and ``problem_mark`` say which, and where."""


@dataclass
class _Part:
    """A list or mapping while it is read: its anchor, and how many values and levels it has so far."""

    anchor: str | None = None
    values: int = 1
    levels: int = 1


@dataclass
class _Count:
    """Size and depth of a text, aliases written out."""

    open: list[_Part] = field(default_factory=lambda: [_Part()])  # the text itself first
    known: dict[str, _Part] = field(default_factory=dict)  # what aliases stand for

    def add(self, part: _Part, event: yaml.Event) -> None:
        """Add a finished part to the one that holds it."""
        if part.anchor:
            self.known[part.anchor] = part
        holder = self.open[-1]
        holder.values, holder.levels = holder.values + part.values, max(holder.levels, part.levels + 1)
        if sum(one.values for one in self.open) > MOST:
            raise _too_large(f"has more than {MOST} values, aliases written out", event)
        if len(self.open) - 1 + part.levels > DEEPEST + 1:
            raise _too_large(f"has more than {DEEPEST} lists and mappings in one another", event)


def _too_large(what: str, event: yaml.Event | None = None) -> TooLarge:
    mark: Any = event.start_mark if event else None
    return TooLarge(problem=f"{what}; no file of FedMed needs that", problem_mark=mark)


def check_limits(text: str, aliases: bool = True) -> None:
    """Return if a text is within all limits; nothing of it is built.

    Args:
        aliases: whether it may have some.

    Raises:
        TooLarge: it is not, and where.
        yaml.YAMLError: it is no YAML.
    """
    if len(text) > LONGEST:
        raise _too_large(f"has more than {LONGEST} characters")
    count = _Count()
    for event in yaml.parse(text, Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            count.open.append(_Part(event.anchor))
            if len(count.open) - 1 > DEEPEST:
                raise _too_large(f"has more than {DEEPEST} lists and mappings in one another", event)
        elif isinstance(event, yaml.CollectionEndEvent):
            count.add(count.open.pop(), event)
        elif isinstance(event, yaml.ScalarEvent):
            if len(event.value) > LONGEST_VALUE:
                raise _too_large(f"has a value of more than {LONGEST_VALUE} characters", event)
            count.add(_Part(event.anchor), event)
        elif isinstance(event, yaml.AliasEvent):
            if not aliases:
                mark: Any = event.start_mark
                raise TooLarge(problem=f"has the alias *{event.anchor}; write values out", problem_mark=mark)
            stood_for = count.known.get(str(event.anchor), _Part())
            count.add(_Part(None, stood_for.values, stood_for.levels), event)


def load_limited(text: str) -> Any:
    """Plain values of a YAML text within the limits.

    Raises:
        yaml.YAMLError: it is no YAML, or beyond a limit (:class:`TooLarge`).
    """
    check_limits(text)
    return Loader(text).get_single_data()
