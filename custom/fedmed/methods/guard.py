"""Warn when the training of a site collapses: what is common to all kinds of training."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.messages.answers import Update


@dataclass(frozen=True)
class SuspectedCollapse:
    """What a guard has found at a site.

    Attributes:
        site: the site concerned.
        message: what was seen and what to do.
        what: its kind, as the guard that found it names it.
        value: the number of this round that it is about, 0..1.
        reference: what that was compared with, 0..1.
    """

    site: str
    message: str
    what: str
    value: float
    reference: float


class Guard(ABC):
    """Watches one kind of training by the means that a site reports of a round, taken before its update is averaged.

    A finding is told once, when it begins; training goes on. Sites that do not report ``needs``, because they train
    in another way or their settings do not allow it, are not watched.
    """

    needs: ClassVar[tuple[str, ...]]  # metrics without which there is nothing to judge

    def __init__(self) -> None:
        self.memory: dict[str, list[float]] = {}  # site -> what earlier rounds are remembered by
        self.told: dict[str, str] = {}  # site -> what is the matter with it, or ""

    def state(self) -> dict[str, Any]:
        """Plain values from which :meth:`restore` goes on."""
        return {"memory": {site: list(values) for site, values in self.memory.items()}, "told": dict(self.told)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        self.memory = {site: list(values) for site, values in state.get("memory", {}).items()}
        self.told = dict(state.get("told", {}))

    def check(self, update: Update) -> SuspectedCollapse | None:
        """Take one accepted update into account and return what is new."""
        if any(name not in update.metrics for name in self.needs):
            return None
        finding = self.judge(update)
        before, now = self.told.get(update.site, ""), finding.what if finding else ""
        self.told[update.site] = now
        return finding if now != before else None

    @abstractmethod
    def judge(self, update: Update) -> SuspectedCollapse | None:
        """Remember one update of a site that reports ``needs``, and say what is the matter, new or not."""


def percent(share: float) -> str:
    """``1.8 %``, ``0.0012 %``."""
    return f"{100 * share:.3g} %" if share >= 1e-6 or share == 0 else "less than 0.0001 %"
