"""Warn when a site's pseudo-labels collapse: mistakes are reinforced until they are everywhere, or nowhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from fedmed.federation.messages import Update

REFERENCE_ROUNDS = 3  # a site's own first rounds, with which later ones are compared
ALL = 0.9  # no organ or disease fills so much of a scan
RISE = 5.0  # times the reference; over healthy runs it stays below 2.5
RISE_FROM = 0.01  # a smaller reference counts as this, so below 5 % of the voxels a rise is noise, or learning
NONE = 1e-5
FALL = 1 / 20
FALL_FROM = 1e-3  # a site that began below it, such as a control population, may well predict nothing
FALL_TO = 1e-3  # an untrained network predicts half of a scan; coming down from there is learning
ADVICE = (
    "lower unsupervised_learning_rate or the site's user weight, raise confidence, or set consistency_scope to "
    "two_sided"
)


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        site: the site concerned.
        message: what was seen and what to do.
        foreground_fraction: share of voxels with p > 0.5 in this round, 0..1.
        reference: the same in the site's first rounds, 0..1.
    """

    site: str
    message: str
    foreground_fraction: float
    reference: float


class CollapseGuard:
    """Watches the share of voxels that each unlabelled site predicts as foreground.

    Sites report the mean over a round's patches, before the update is averaged, so a collapse shows even where the
    labelled sites still hold the global model back. A finding is told once, when it begins; training goes on.

    A site's first round is never judged: the network may be untrained. A fall to nothing is right at a population
    without disease, which the server cannot know: a site that never predicted any is left in peace, and the message
    about any other says so.
    """

    def __init__(self) -> None:
        self._first: dict[str, list[float]] = {}
        self._told: dict[str, str] = {}

    def state(self) -> dict[str, Any]:
        """Plain values from which :meth:`restore` goes on."""
        return {"first": {site: list(values) for site, values in self._first.items()}, "told": dict(self._told)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        self._first = {site: list(values) for site, values in state.get("first", {}).items()}
        self._told = dict(state.get("told", {}))

    def check(self, update: Update) -> Finding | None:
        """Take one accepted update into account and return what is new."""
        fraction = update.metrics.get("train_foreground_fraction")
        if fraction is None:
            return None
        first = self._first.setdefault(update.site, [])
        reference = median(first) if first else None
        if len(first) < REFERENCE_ROUNDS:
            first.append(fraction)
        finding = None if reference is None else judge(fraction, reference)
        news = finding if finding and finding[0] != self._told.get(update.site) else None
        self._told[update.site] = finding[0] if finding else ""
        return None if news is None else Finding(update.site, news[1], fraction, reference)


def judge(fraction: float, reference: float) -> tuple[str, str] | None:
    """Return (kind, message) of a collapse, or None.

    Args:
        fraction: share of voxels predicted as foreground, 0..1.
        reference: the same in the site's first rounds.
    """
    seen = f"of voxels predicted as foreground, {percent(reference)} in the site's first rounds"
    if fraction > ALL or fraction > RISE * max(reference, RISE_FROM):
        return "all", f"{percent(fraction)} {seen}: its pseudo-labels are spreading; {ADVICE}"
    vanished = fraction < NONE or (fraction < FALL * reference and fraction < FALL_TO)
    if vanished and reference >= FALL_FROM:
        return "none", (
            f"{percent(fraction)} {seen}: its pseudo-labels have vanished, which is right only where nobody has the "
            f"disease; otherwise {ADVICE}"
        )
    return None


def percent(fraction: float) -> str:
    """``1.8 %``, ``0.0012 %``."""
    return f"{100 * fraction:.3g} %" if fraction >= 1e-6 or fraction == 0 else "less than 0.0001 %"
