"""Hospitals with labels, each by the model that it trained alone and by the federation's: who gained, who lost."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from rich.console import RenderableType

from fedmed.reports.gain import BETTER, LABELLED, NO_LABELS, SCORED, WORSE, Gain, signed
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import number
from fedmed.reports.site_rows import screen_table
from fedmed.reports.words import NOTHING, count, fixed, join
from fedmed.training.jackknife import LEVEL

KEYS = {"alone": "test_alone", "together": "test", "last": "test_last", "own choice": "test_own"}  # head -> in a result
KEYS |= {"released layers": "test_released"}
MOST = 2  # hospitals that each have a sentence
PARTS = {"supervised": LABELLED, "unsupervised": NO_LABELS}


@dataclass(frozen=True)
class HospitalRow:
    """A hospital's row.

    Attributes:
        scores: head of a column -> score, 0..1; None where that model was not tested there.
        gain: together against alone.
        p: two-sided, that alone and together do the same, adjusted by Holm over all hospitals that tell one.
        better: patients for whom together is better; None where cases have no score of their own.
        withheld: fewest patients whose gain the hospital lets go, where it has fewer; 0 else.
    """

    name: str
    scores: dict[str, float | None]
    gain: Gain
    p: float | None = None
    better: int | None = None
    withheld: int = 0

    @property
    def finding(self) -> str:
        """The verdict, by the adjusted p; why there is none."""
        if self.withheld:
            return f"withheld: fewer than {self.withheld} patients"
        if self.gain.part != LABELLED:
            return f"{self.gain.part}, so it cannot train alone"
        if self.gain.theirs is None:
            return "it trained no model alone"
        if self.gain.verdict in (BETTER, WORSE) and self.p is not None and self.p >= 1 - LEVEL:
            return f"{self.gain.verdict}, but not beyond chance among so many hospitals"
        return self.gain.finding

    @property
    def sure(self) -> str:
        """:data:`BETTER` or :data:`WORSE` where the adjusted p says so; empty else."""
        return self.gain.verdict if self.finding in (BETTER, WORSE) else ""

    @property
    def better_text(self) -> str:
        """``17 of 20``."""
        return NOTHING if self.better is None else f"{self.better} of {self.gain.n_patients}"

    @property
    def text(self) -> str:
        """Both scores, their difference, and for how many patients it is better."""
        interval = "" if self.gain.low is None else f" ({self.gain.span})"
        patients = "" if self.better is None else f", better for {self.better_text} patients"
        return (
            f"{self.name} {fixed(self.gain.ours)} together, {fixed(self.gain.theirs)} alone: "
            f"{signed(self.gain.difference)}{interval}{patients}: {self.finding}"
        )


def hospitals(run: Run) -> list[HospitalRow]:
    """A row for each site of a study with ``gain``, labelled sites first; none where no site told a score alone."""
    tests = {head: (run.result or {}).get(key) or {} for head, key in KEYS.items()}
    if not tests["alone"]:
        return []
    numbers = [number((tests["alone"].get(site.name) or {}).get("gain_p")) for site in run.sites]
    adjusted = iter(holm([p for p in numbers if p is not None]))
    ps = [None if p is None else next(adjusted) for p in numbers]
    return [_hospital(run, site, {head: of.get(site.name) or {} for head, of in tests.items()}, p)
            for site, p in zip(run.sites, ps, strict=True)]  # fmt: skip


def _hospital(run: Run, site: Site, tests: dict[str, dict[str, Any]], p: float | None) -> HospitalRow:
    scores = {head: number(test.get(run.score.test)) for head, test in tests.items()}
    numbers = {name: number(tests["alone"].get(f"gain{name}")) for name in ("", "_low", "_high", "_error", "_better")}
    patients = int(number(tests["alone"].get("gain_patients")) or 0)
    cases = int(number(tests["alone"].get("n_cases")) or number(tests["together"].get("n_cases")) or 0)
    part = PARTS.get(site.role, SCORED)
    intervals = {"low": numbers["_low"], "high": numbers["_high"], "error": numbers["_error"]}
    gain = Gain(site.name, part, scores["together"], scores["alone"], n_cases=cases, n_patients=patients, **intervals)
    better, least = numbers["_better"], int(number(tests["alone"].get("min_cases")) or 0)
    return HospitalRow(site.name, scores, gain, p, None if better is None else int(better), least)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values for their number, in the order of the input (Holm 1979, Scand. J. Statist. 6, 65-70)."""
    p, order = np.asarray(p_values, float), np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return [float(value) for value in adjusted]


def heads(rows: Sequence[HospitalRow]) -> list[str]:
    """Heads of the models that some hospital has tested."""
    return [head for head in KEYS if any(row.scores[head] is not None for row in rows)]


def headline(run: Run) -> str:
    """Say in a sentence or two what hospitals with labels gain; empty where none told."""
    rows = [row for row in hospitals(run) if row.gain.difference is not None]
    if not rows:
        return ""
    if len(rows) <= MOST:
        return f"{run.score.label} of hospitals with labels (95 % intervals): {'; '.join(row.text for row in rows)}."
    parts = [
        f"{word}: {join(names)}" for word in (BETTER, WORSE) if (names := [r.name for r in rows if r.sure == word])
    ]
    rest = count(sum(not row.sure for row in rows), "hospital")
    said = "; ".join([*parts, f"no clear difference: {rest}"])
    return f"Of {len(rows)} hospitals that also trained alone, by {run.score.label} of their own test lists: {said}."


def single_text(run: Run) -> str:
    """Compare the best and the median model of a single hospital with the federation's, on the same cases."""
    rows = [row for row in hospitals(run) if row.gain.difference is not None]
    if len(rows) < MOST:
        return ""
    best = max(rows, key=lambda row: row.gain.theirs or 0.0)
    middle = {head: median(row.scores[head] or 0.0 for row in rows) for head in ("alone", "together")}
    return (
        f"The best model of a single hospital is that of {best.name}: {fixed(best.gain.theirs)} on its own cases, "
        f"where the federation's has {fixed(best.gain.ours)}. The median over hospitals is {fixed(middle['alone'])} "
        f"alone and {fixed(middle['together'])} together, on the same cases. No model trained alone leaves its "
        "hospital, so none was tested at another."
    )


def on_screen(run: Run) -> list[RenderableType]:
    """The table for a terminal; nothing without a model trained alone."""
    rows = hospitals(run)
    if not rows:
        return []
    shown, models = [], heads(rows)
    for row in rows:
        cells = {"site": row.name, "cases": str(row.gain.n_cases or NOTHING)}
        cells |= {head: fixed(row.scores[head]) for head in models}
        shown.append({**cells, "gain": f"{signed(row.gain.difference)}\n{row.gain.span}".removesuffix(f"\n{NOTHING}")})
    title = f"{run.job}: {run.score.label} of each hospital alone and together, gain with its 95 % interval"
    return [screen_table(title, shown, list(filter(None, [headline(run), single_text(run), *notes(rows)])))]


def notes(rows: Sequence[HospitalRow]) -> list[str]:
    """Hospitals that are worse off, then those that withhold what they gain."""
    worse = [row.name for row in rows if row.sure == WORSE]
    withheld = [f"{row.name} (fewer than {row.withheld} patients)" for row in rows if row.withheld]
    said = {"Worse off together than alone": worse, "Withheld by the hospital itself": withheld}
    return [f"{what}: {join(names)}." for what, names in said.items() if names]
