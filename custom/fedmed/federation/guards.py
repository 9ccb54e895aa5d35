"""All guards of a run: those that its method declares."""

from collections.abc import Mapping
from typing import Any

from fedmed.messages.answers import Update
from fedmed.methods.guard import Guard, SuspectedCollapse


class CollapseGuard:
    """Gives each update to every guard; a guard knows by the metrics of an update whether it is meant.

    Args:
        guards: name, under which its state is saved -> guard.
    """

    def __init__(self, guards: Mapping[str, Guard]) -> None:
        self.guards = dict(guards)

    def state(self) -> dict[str, Any]:
        """Plain values from which :meth:`restore` goes on."""
        return {name: guard.state() for name, guard in self.guards.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        for name, guard in self.guards.items():
            guard.restore(state.get(name, {}))

    def check(self, update: Update) -> list[SuspectedCollapse]:
        """Take one accepted update into account and return what is new."""
        found = [guard.check(update) for guard in self.guards.values()]
        return [finding for finding in found if finding]
