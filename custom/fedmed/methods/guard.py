"""Warn when the training of a site collapses: what all kinds of training have in common, and pseudo-labels."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar

from fedmed.messages.answers import Update

REFERENCE_ROUNDS = 3  # a site's own first rounds, with which later ones are compared
ALL = 0.9  # no organ or disease fills so much of a scan
RISE = 5.0  # times the reference; over healthy runs it stays below 2.5
RISE_FROM = 0.01  # a smaller reference counts as this, so below 5 % of the voxels a rise is noise, or learning
NONE = 1e-5
FALL = 1 / 20
FALL_FROM = 1e-3  # a site that began below it, such as a control population, may well predict nothing
FALL_TO = 1e-3  # an untrained network predicts half of a scan; coming down from there is learning
FRACTION = "train_foreground_fraction"


@dataclass(frozen=True)
class SuspectedCollapse:
    """Finding of a guard at a site.

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
        self.findings: dict[str, str] = {}  # site -> what is the matter with it, or ""

    def state(self) -> dict[str, Any]:
        """Plain values from which :meth:`restore` goes on."""
        return {"memory": {site: list(values) for site, values in self.memory.items()}, "told": dict(self.findings)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        self.memory = {site: list(values) for site, values in state.get("memory", {}).items()}
        self.findings = dict(state.get("told", {}))

    def check(self, update: Update) -> SuspectedCollapse | None:
        """Take one accepted update into account and return what is new."""
        if any(name not in update.metrics for name in self.needs):
            return None
        finding = self.judge(update)
        before, now = self.findings.get(update.site, ""), finding.what if finding else ""
        self.findings[update.site] = now
        return finding if now != before else None

    def reference(self, site: str, value: float) -> float | None:
        """Median of what a site reported in its first rounds, before this ``value``; None in the very first."""
        first = self.memory.setdefault(site, [])
        reference = median(first) if first else None
        if len(first) < REFERENCE_ROUNDS:
            first.append(value)
        return reference

    @abstractmethod
    def judge(self, update: Update) -> SuspectedCollapse | None:
        """Remember one update of a site that reports ``needs``, and say what is the matter, new or not."""


def percent(share: float) -> str:
    """``1.8 %``, ``0.0012 %``."""
    return f"{100 * share:.3g} %" if share >= 1e-6 or share == 0 else "less than 0.0001 %"


class PseudoLabelGuard(Guard):
    """Watches the share of voxels with p > 0.5 that each unlabelled site predicts, the mean over a round's patches.

    It remembers a site's first rounds and finds ``pseudo_labels_spreading`` and ``pseudo_labels_vanished``; value and
    reference are that share in this round and in those. A collapse shows even where the labelled sites still hold the
    global model back.

    A site's first round is never judged: the network may be untrained. A fall to nothing is right at a population
    without disease, which the server cannot know: a site that never predicted any is left in peace, and the message
    about any other says so.

    Args:
        advice: what to do, for the messages, by settings that the method has.
    """

    needs = (FRACTION,)

    def __init__(self, advice: str) -> None:
        super().__init__()
        self.advice = advice

    def judge(self, update: Update) -> SuspectedCollapse | None:
        fraction = update.metrics[FRACTION]
        reference = self.reference(update.site, fraction)
        if reference is None:
            return None
        seen = f"{percent(fraction)} of voxels predicted as foreground, {percent(reference)} in the site's first rounds"
        if fraction > ALL or fraction > RISE * max(reference, RISE_FROM):
            message = f"{seen}: its pseudo-labels are spreading; {self.advice}"
            return SuspectedCollapse(update.site, message, "pseudo_labels_spreading", fraction, reference)
        vanished = fraction < NONE or (fraction < FALL * reference and fraction < FALL_TO)
        if vanished and reference >= FALL_FROM:
            right = "right only where nobody has the disease; otherwise"
            message = f"{seen}: its pseudo-labels have vanished, which is {right} {self.advice}"
            return SuspectedCollapse(update.site, message, "pseudo_labels_vanished", fraction, reference)
        return None
