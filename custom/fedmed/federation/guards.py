"""All guards of a run, one for each kind of training that can collapse."""

from collections.abc import Mapping
from typing import Any

from fedmed.federation.guard import Finding, Guard
from fedmed.federation.guard_contrast import ContrastGuard
from fedmed.federation.guard_pseudo_labels import PseudoLabelGuard
from fedmed.messages.answers import Update


class CollapseGuard:
    """Gives each update to every guard; a guard knows by the metrics of an update whether it is meant."""

    def __init__(self) -> None:
        self.guards: dict[str, Guard] = {"pseudo_labels": PseudoLabelGuard(), "contrast": ContrastGuard()}

    def state(self) -> dict[str, Any]:
        """Plain values from which :meth:`restore` goes on."""
        return {name: guard.state() for name, guard in self.guards.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        for name, guard in self.guards.items():
            guard.restore(state.get(name, {}))

    def check(self, update: Update) -> list[Finding]:
        """Take one accepted update into account and return what is new."""
        found = [guard.check(update) for guard in self.guards.values()]
        return [finding for finding in found if finding]
