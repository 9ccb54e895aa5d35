"""Checks of the numbers that sites report: their ranges, the usual size of updates, guards of the method."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median, median_low
from typing import Any

from fedmed.bundles.score import Score
from fedmed.errors import UpdateRefused
from fedmed.jobs.study import Study
from fedmed.kinds.kind import ANY, SHARE, Kind, Range
from fedmed.messages.answers import Update, is_number
from fedmed.methods.guard import Guard, SuspectedCollapse
from fedmed.methods.method import Method

SAMPLES, STEPS, CASES, FRAMES = "n_samples", "n_steps", "n_cases", "n_frames"
NAMED = 3  # numbers of one answer that a record tells of
Kept = tuple[dict[str, float], list[str]]  # what counts, and what does not, in sentences
LARGEST_RATIO = 1000.0  # unless a study says otherwise
REMEMBERED = 20  # rounds of a site


class ReportedNumbers:
    """Limits within which the server believes the numbers beside the tensors.

    Whatever a number is used for, such as a weight or the choice of a model, a site could otherwise make itself count
    for as much as it likes.

    Args:
        ranges: metric -> in which range it must lie; of others only that they are finite.

    Attributes:
        first: site -> count -> what it told with its first update that entered the model.
    """

    def __init__(self, study: Study, ranges: Mapping[str, Range]) -> None:
        self.study, self.ranges = study, ranges
        self.first: dict[str, dict[str, int]] = {}
        self._tested: dict[str, float] = {}  # site -> cases of its first test

    def check(self, update: Update) -> None:
        """Refuse an update whose counts are beyond the study's bounds.

        Raises:
            UpdateRefused: names the count and the study's key.
        """
        most = self.study.max_samples
        bounds = {SAMPLES: most}
        if self.study.epochs is not None:  # with steps the study says how many
            bounds[STEPS] = most * math.ceil(self.study.epochs)
        for name, bound in bounds.items():
            if (count := getattr(update, name)) > bound:
                raise UpdateRefused(update.site, f"{name} is {count}; the study's 'max_samples' allows {bound}")

    def bounded(self, update: Update) -> tuple[Update, list[str]]:
        """Return an update with counts no larger than the site's first ones, and the metrics that can be; and what was
        wrong with it, in sentences.
        """
        metrics, wrong = self.metrics(update.metrics)
        counts: dict[str, Any] = {}
        for name, most in self.first.get(update.site, {}).items():
            if (count := getattr(update, name)) > most:
                counts[name] = most
                wrong.append(f"its {name} is {count}, it was {most} at first, and counts as that")
        return replace(update, metrics=metrics, **counts), wrong

    def metrics(self, metrics: Mapping[str, Any]) -> Kept:
        """Return the numbers of an answer that lie in their ranges, and in sentences those that do not."""
        kept, wrong = {}, []
        for name, value in metrics.items():
            allowed = self.ranges.get(name, ANY)
            if not allowed.holds(value):
                wrong.append(f"its {name} is {_shown(value)}, it must be {allowed}; it does not count")
            else:
                kept[name] = value
        return kept, _few(wrong)

    def test(self, site: str, metrics: Mapping[str, Any]) -> Kept:
        """:meth:`metrics` of a test: no later list has more cases, and no label more frames than there are."""
        kept, wrong = self.metrics(metrics)
        most = {name: kept.get(FRAMES, math.inf) for name in kept if self.ranges.get(name, ANY).whole}
        most |= {CASES: min(self._tested.get(site, self.study.max_samples), most.get(CASES, math.inf))}
        most |= {FRAMES: math.inf, "min_cases": math.inf, "model_round": self.study.rounds}
        for name in [name for name in kept if kept[name] > most.get(name, math.inf)]:
            wrong.append(f"its {name} is {_shown(kept.pop(name))}, it told of {most[name]:g}; it does not count")
        if kept.get(CASES):
            self._tested.setdefault(site, kept[CASES])
        return kept, _few(wrong)

    def samples(self, updates: Sequence[Update] = ()) -> dict[str, int]:
        """Site -> training images that it told of first; those of ``updates`` count where it told of none before."""
        images = {update.site: update.n_samples for update in updates if update.n_samples}
        return images | {site: counts[SAMPLES] for site, counts in self.first.items() if SAMPLES in counts}

    def keep(self, updates: Sequence[Update]) -> None:
        """Remember the counts of sites whose first update entered the model; 0 images say that it does not tell."""
        names = (SAMPLES, STEPS) if self.study.epochs is not None else (SAMPLES,)
        for update in updates:
            of_site = self.first.setdefault(update.site, {})
            for name in names:
                if count := getattr(update, name):
                    of_site.setdefault(name, int(count))

    def state(self) -> dict[str, dict[str, int]]:
        """Plain values from which :meth:`restore` goes on."""
        return {site: dict(counts) for site, counts in self.first.items()}

    def restore(self, state: Mapping[str, Mapping[str, int]]) -> None:
        """Inverse of :meth:`state`; ``{}`` is the start."""
        self.first = {site: dict(counts) for site, counts in state.items()}


def ranges_of(kind: Kind, method: Method, score: Score, classes: Sequence[str]) -> dict[str, Range]:
    """Range of each number that sites of a job report."""
    shares = {scalar.name: SHARE for scalar in method.scalars() if scalar.unit == "share"}
    return {**shares, **kind.ranges(score, classes)}


def _few(wrong: list[str]) -> list[str]:
    more = len(wrong) - NAMED
    return wrong if more <= 0 else [*wrong[:NAMED], f"and {more} more of its numbers do not count"]


def _shown(value: Any) -> str:
    if type(value) not in (int, float):
        return f"a {type(value).__name__}"
    return f"{float(value):.6g}" if is_number(value) or isinstance(value, float) else "beyond the largest number"


class UsualNorms:
    """Bounds the L2 norm of each update by what is usual in the run; a site that is merely unlike the others passes.

    The bound of a site is ``ratio`` times the larger of two medians: that of the other sites' updates of the round
    (of an even number the lower one, so that of two sites the larger cannot vouch for itself), and that of the site's
    own updates of earlier rounds. Norms of 0 say nothing. Where neither is known, as for a site alone in its first
    round, the norm of the model stands for them. An update no larger than the model itself always passes: others that
    have hardly begun to learn make nobody absurd.

    Args:
        ratio: how many times the usual norm an update may have, 1 or more.

    Attributes:
        earlier: site -> norms of its updates that entered the model, the latest rounds' at most.
    """

    def __init__(self, ratio: float = LARGEST_RATIO) -> None:
        self.ratio = ratio
        self.earlier: dict[str, list[float]] = {}

    def refusals(self, norms: Mapping[str, float], model_norm: Callable[[str], float]) -> list[UpdateRefused]:
        """Say which updates of a round are too large, whatever the order in which they came.

        Args:
            model_norm: site -> norm of the tensors that its update changes; asked only where it decides.
        """
        refused = []
        for site, norm in sorted(norms.items()):
            usual = self._usual(site, norms) or model_norm(site)
            if usual and norm > self.ratio * usual and norm > model_norm(site):
                reason = (
                    f"the norm of its differences is {norm:.4g}, {norm / usual:.3g} times the usual {usual:.4g}; the "
                    f"study's 'max_norm_ratio' takes {self.ratio:g} times"
                )
                refused.append(UpdateRefused(site, reason))
        return refused

    def _usual(self, site: str, norms: Mapping[str, float]) -> float:
        others = [norm for other, norm in norms.items() if other != site and norm > 0]
        of_site = [norm for norm in self.earlier.get(site, ()) if norm > 0]
        return max(median_low(others) if others else 0.0, median(of_site) if of_site else 0.0)

    def keep(self, norms: Mapping[str, float]) -> None:
        """Remember the updates that entered the model."""
        for site, norm in norms.items():
            self.earlier[site] = [*self.earlier.get(site, ()), norm][-REMEMBERED:]

    def state(self) -> dict[str, list[float]]:
        """Plain values from which :meth:`restore` goes on."""
        return {site: list(norms) for site, norms in self.earlier.items()}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Inverse of :meth:`state`; ``{}`` is the start."""
        self.earlier = {site: [norm for norm in norms if math.isfinite(norm)] for site, norms in state.items()}


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
        findings = [guard.check(update) for guard in self.guards.values()]
        return [finding for finding in findings if finding]
