"""Gain by the sites that train without labels: a run beside its controls, site by site."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
from scipy.special import ndtri

from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import column, number
from fedmed.reports.run_report import report_of
from fedmed.reports.words import NOTHING, count
from fedmed.training.jackknife import estimate, leave_one_out

LABELLED, SCORED, NO_LABELS, SOME_LABELS = "labelled", "only scored", "no labels", "some labels"
BETTER, WORSE, NONE_SEEN, TOO_FEW = "better off", "worse off", "no difference detected", "too few patients to tell"
LEAST_SOUGHT = 0.01  # of a score; another seed alone moves one by as much
PATIENT = "patient"
Scorer = Callable[[pd.DataFrame, np.ndarray], np.ndarray]  # cases (n rows), weights (R, n) -> (R,), NaN for no score


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
        """Verdict by the interval; empty where there are no single cases to tell.

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
        """True where there is an interval, and so few patients that it could hardly have left 0 out."""
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
    def text(self) -> str:
        return f"{signed(self.difference)} ({self.basis})"


def signed(value: float | None) -> str:
    """``+0.050``, with a minus that is as wide."""
    return NOTHING if value is None else f"{value:+.3f}".replace("-", "−")


@dataclass(frozen=True)
class Step:
    """Gains from a control to the next one, or to the run.

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
    shown = [site for site in order if any(_tested(one, site.name)[0] is not None for one in chain)]
    pairs = zip(controls, chain[1:], chain, strict=False)
    return [Step(kind, [_gain(run, site, (ours, theirs), chain) for site in shown]) for kind, ours, theirs in pairs]


def _gain(run: Run, site: Site, pair: tuple[Run, Run], chain: Sequence[Run]) -> Gain:
    ours, theirs = (_tested(one, site.name) for one in pair)
    scored = [one for one in chain if _tested(one, site.name)[0] is not None]
    if ours[0] is None or theirs[0] is None or (paired := _paired(run, site, pair, scored)) is None:
        return Gain(site.name, _part(run, site), ours[0], theirs[0], n_cases=ours[1] or theirs[1])
    same = all(paired.n_cases == _tested(one, site.name)[1] for one in scored)
    scores = (ours[0], theirs[0]) if same else (paired.ours, paired.theirs)
    known = {"low": paired.low, "high": paired.high, "error": paired.error}
    return Gain(site.name, _part(run, site), *scores, n_cases=paired.n_cases, n_patients=paired.n_patients, **known)


def _part(run: Run, site: Site) -> str:
    if site.role == "unsupervised":
        return SOME_LABELS if run.used_labels(site) else NO_LABELS
    return LABELLED if site.role == "supervised" else SCORED


@dataclass(frozen=True)
class PairedScores:
    """Scores of the cases that both models were tested on.

    Attributes:
        n_cases, n_patients: how many these are, and of how many patients.
        ours, theirs: their score by each model.
        low, high: 95 % interval of ``ours - theirs``; None where the patients cannot tell, such as fewer than four.
        error: standard error of the difference.
        p: two-sided, of no difference; None without an interval.
    """

    n_cases: int
    n_patients: int
    ours: float
    theirs: float
    low: float | None
    high: float | None
    error: float | None
    p: float | None = None


def _paired(run: Run, site: Site, pair: tuple[Run, Run], scored: Sequence[Run]) -> PairedScores | None:
    report = report_of(run)
    needed = report.case_columns(run, site.cases)
    also = [_cases(one, site.name) for one in scored]
    if not needed or not all(set(needed) <= set(cases) for cases in also):
        return None
    ours, theirs = (_cases(one, site.name) for one in pair)
    return paired_scores(ours, theirs, needed, partial(report.weighted, run), also)


def _cases(run: Run, name: str) -> pd.DataFrame:
    return next(site.cases for site in run.sites if site.name == name)


def _tested(run: Run, name: str) -> tuple[float | None, int]:
    """The score that a site sent of its test, and of how many cases."""
    test = ((run.result or {}).get("test") or {}).get(name) or {}
    return number(test.get(run.score.test)), int(number(test.get("n_cases")) or 0)


def paired_scores(
    ours: pd.DataFrame,
    theirs: pd.DataFrame,
    needed: Sequence[str],
    score: Scorer,
    also: Sequence[pd.DataFrame] = (),
) -> PairedScores | None:
    """Compare two models case by case; None where they have no case in common.

    The interval is that of :mod:`fedmed.training.jackknife`: each patient is left out once, with all cases and from
    both models.

    Args:
        ours, theirs: two tables of cases, as text, with the columns ``case`` and ``patient``.
        needed: columns without whose numbers a case has no score.
        score: of cases, each as often as its weight says.
        also: such tables of other models; a case that one of them did not score, or with another label, does not count.
    """
    first, second = _known(ours, needed), _known(theirs, needed)
    for other in also:
        if other is not ours and other is not theirs:
            first, _ = _both(first, _known(other, needed))
    first, second = _both(first, second)
    if first.empty:
        return None
    patients = first[PATIENT].to_numpy(str)
    a, b = (leave_one_out(partial(score, cases), patients) for cases in (first, second))
    jackknife = estimate(a - b)
    paired = PairedScores(len(first), len(a) - 1, float(a[0]), float(b[0]), None, None, None)
    if jackknife is None:
        return paired
    low, high = jackknife.interval()
    low, high = max(low, -1.0), min(high, 1.0)  # as far as scores of 0 to 1 can be apart
    return replace(paired, low=low, high=high, error=jackknife.error, p=jackknife.p_differs())


def common_cases(tables: Sequence[pd.DataFrame], needed: Sequence[str]) -> list[pd.DataFrame]:
    """Return the cases that each of several models scored, under one label, in the order of the first table.

    Args:
        tables: at least one, as of :func:`paired_scores`.
        needed: columns that each of them has, without whose numbers a case has no score.
    """
    known = [_known(table, needed) for table in tables]
    first = known[0]
    for other in known[1:]:
        first, _ = _both(first, other)
    return [_both(first, one)[1].reset_index(drop=True) for one in known]


def patients_to_tell(error: float, patients: int, difference: float) -> float:
    """Return how many patients would show a difference in four of five studies, where they spread as these do.

    A two-sided test at 5 % with a power of 80 %, by the normal distribution: ((1.96 + 0.84) s / difference)².

    Args:
        error: standard error with so many ``patients``, s / √patients.
        difference: to be shown; not 0.
    """
    return float(((ndtri(0.975) + ndtri(0.8)) * error / difference) ** 2 * patients)


def _known(cases: pd.DataFrame, needed: Sequence[str]) -> pd.DataFrame:
    """Cases that have a score, by name; files of one name in several folders are several cases, by their order."""
    if cases.empty:
        return pd.DataFrame({PATIENT: [], "label": []})
    finite = np.all([np.isfinite(column(cases, name)) for name in needed], axis=0)
    again = cases.groupby("case").cumcount().astype(str)
    return cases.set_index([cases["case"], again])[finite]


def _both(first: pd.DataFrame, second: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The cases of both, in the order of the first, without those whose label is another one in the second."""
    same = first.index.intersection(second.index, sort=False)
    first, second = first.loc[same], second.loc[same]
    if "label" in first and "label" in second:
        alike = (first["label"] == second["label"]).to_numpy(bool)
        first, second = first[alike], second[alike]
    return first, second
