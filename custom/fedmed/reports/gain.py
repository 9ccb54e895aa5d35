"""What the sites that train without labels bring: a run beside its controls, site by site."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from fedmed.reports.paired_scores import PairedScores, paired_scores, patients_to_tell
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import number
from fedmed.reports.run_report import report_of
from fedmed.reports.words import NOTHING, count

LABELLED, SCORED, NO_LABELS, SOME_LABELS = "labelled", "only scored", "no labels", "some labels"
BETTER, WORSE, NONE_SEEN, TOO_FEW = "better off", "worse off", "no difference detected", "too few patients to tell"

LEAST_SOUGHT = 0.01  # of a score; another seed alone moves one by as much


@dataclass(frozen=True)
class Gain:
    """A site's score with and without something that the sites without labels bring, 0..1.

    Attributes:
        name: of the site.
        part: whether it trains with labels, without, or not at all.
        ours, theirs: score of the run, and of its control; or of a control, and of the one before it; None where the
            site was not scored.
        low, high: 95 % interval of the difference; None where single cases are not here, or the patients are too few.
        n_cases, n_patients: what the scores are of; no patients where single cases are not here.
        error: standard error of the difference; None without an interval.
    """

    name: str
    part: str
    ours: float | None
    theirs: float | None
    low: float | None = None
    high: float | None = None
    n_cases: int = 0
    n_patients: int = 0
    error: float | None = None

    @property
    def difference(self) -> float | None:
        """With, less without."""
        return None if self.ours is None or self.theirs is None else self.ours - self.theirs

    @property
    def verdict(self) -> str:
        """What the interval says; empty where there are no single cases to tell.

        An interval that holds 0 says that no difference was detected only where so many patients would have shown one.
        """
        if self.low is None or self.high is None:
            return TOO_FEW if self.n_patients else ""
        nothing = TOO_FEW if self.needed > self.n_patients else NONE_SEEN
        return BETTER if self.low > 0 else WORSE if self.high < 0 else nothing

    @property
    def sought(self) -> float:
        """The difference of which :attr:`needed` speaks: the one that was seen, at least 0.01."""
        return max(abs(self.difference or 0.0), LEAST_SOUGHT)

    @property
    def needed(self) -> int:
        """About how many patients would show :attr:`sought`; 0 where there is no interval to tell it from."""
        if self.error is None:
            return 0
        exact = math.ceil(patients_to_tell(self.error, self.n_patients, self.sought))
        unit = 10 ** max(0, len(str(exact)) - 2)
        return -(-exact // unit) * unit  # two digits: it is an estimate

    @property
    def finding(self) -> str:
        """The verdict in a table: where patients are too few, with the number that would do."""
        return f"{self.verdict} (about {self.needed:,} would)" if self.cannot_tell else self.verdict

    @property
    def cannot_tell(self) -> bool:
        """Whether there is an interval, and so few patients that it could hardly have left 0 out."""
        return self.verdict == TOO_FEW and self.low is not None

    @property
    def span(self) -> str:
        """``+0.021 to +0.081``."""
        return NOTHING if self.low is None or self.high is None else f"{signed(self.low)} to {signed(self.high)}"

    @property
    def of(self) -> str:
        """``8``, or ``60 of 31 patients``."""
        patients = f" of {count(self.n_patients, 'patient')}" if 0 < self.n_patients < self.n_cases else ""
        return f"{self.n_cases}{patients}"

    @property
    def cases(self) -> str:
        """``8 cases``, or ``60 cases of 31 patients``."""
        return count(self.n_cases, "case") + self.of.removeprefix(str(self.n_cases))

    @property
    def basis(self) -> str:
        """The interval, and of how many cases; or why there is none."""
        if self.low is None:
            lacks = "too few for an interval" if self.n_patients else "which are not here one by one"
            return f"{self.cases}, {lacks}"
        return f"95 % interval {self.span} over {self.cases}"

    @property
    def in_words(self) -> str:
        """The difference with its interval."""
        return f"{signed(self.difference)} ({self.basis})"


def signed(value: float | None) -> str:
    """``+0.050``, with a minus that is as wide."""
    return NOTHING if value is None else f"{value:+.3f}".replace("-", "−")


@dataclass(frozen=True)
class Step:
    """What is added from a control to the next one, or to the run.

    Attributes:
        kind: of the control that it begins at.
        gains: a row for each site, in all steps of a run the same sites.
    """

    kind: str
    gains: list[Gain]


def steps(run: Run, controls: Mapping[str, Run]) -> list[Step]:
    """Compare each control with the next one, and the last with the run; sites without labels come first.

    A site has a row if one of them has tested it. Only cases count that all of them scored there.

    Args:
        run: a finished run.
        controls: kind -> finished control, the one with the least first, see
            :func:`fedmed.reports.control_run.check_control`.
    """
    chain = [*controls.values(), run]
    order = sorted(run.sites, key=lambda site: site.role != "unsupervised")
    shown = [site for site in order if any(_told(one, site.name)[0] is not None for one in chain)]
    pairs = zip(controls, chain[1:], chain, strict=False)
    return [Step(kind, [_gain(run, site, (ours, theirs), chain) for site in shown]) for kind, ours, theirs in pairs]


def _gain(run: Run, site: Site, pair: tuple[Run, Run], chain: Sequence[Run]) -> Gain:
    ours, theirs = (_told(one, site.name) for one in pair)
    scored = [one for one in chain if _told(one, site.name)[0] is not None]
    if ours[0] is None or theirs[0] is None or (paired := _paired(run, site, pair, scored)) is None:
        return Gain(site.name, _part(run, site), ours[0], theirs[0], n_cases=ours[1] or theirs[1])
    same = all(paired.n_cases == _told(one, site.name)[1] for one in scored)
    scores = (ours[0], theirs[0]) if same else (paired.ours, paired.theirs)
    known = {"low": paired.low, "high": paired.high, "error": paired.error}
    return Gain(site.name, _part(run, site), *scores, n_cases=paired.n_cases, n_patients=paired.n_patients, **known)


def _part(run: Run, site: Site) -> str:
    if site.role == "unsupervised":
        return SOME_LABELS if run.used_labels(site) else NO_LABELS
    return LABELLED if site.role == "supervised" else SCORED


def _paired(run: Run, site: Site, pair: tuple[Run, Run], scored: Sequence[Run]) -> PairedScores | None:
    report = report_of(run)
    needed = report.case_columns(run, site.cases)
    also = [_cases(one, site.name) for one in scored]
    if not needed or not all(set(needed) <= set(cases) for cases in also):
        return None
    ours, theirs = (_cases(one, site.name) for one in pair)
    return paired_scores(ours, theirs, needed, partial(report.weighted, run), also)


def _cases(run: Run, name: str) -> pd.DataFrame:
    """A site's table of cases in a run."""
    return next(site.cases for site in run.sites if site.name == name)


def _told(run: Run, name: str) -> tuple[float | None, int]:
    """The score that a site sent of its test, and of how many cases."""
    told = ((run.result or {}).get("test") or {}).get(name) or {}
    return number(told.get(run.score.test)), int(number(told.get("n_cases")) or 0)
