"""The final numbers of each site, and tables for a terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from fedmed.methods.method import decoder_source
from fedmed.plain_text import in_lines, in_markup, in_terminal
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import column, number
from fedmed.reports.words import NOTHING, count, join

ROLES = {"evaluate": "evaluation only"}  # role -> its name, where it has another one
WORDS = ("site", "role", "labels")  # columns of words
SHORT = 16  # characters of a site's name that a terminal keeps on one line, and other columns give way


@dataclass(frozen=True)
class SiteRow:
    """One line of the final table: scores in 0..1, None where the site was not tested.

    Attributes:
        cases: the score of each case, of a score that every case has.
        scored: in words, with whose decoder the site was scored; empty if with its own.
        site_best, site_best_round: the score of the model that the site scored best itself, and the round, counted
            from 0, after which it was aggregated (-1: the starting model); None where the site has no labels, or did
            not say.
        low, high: the 95 % interval, or one standard deviation on either side of the mean.
        test: every number that the site sent of its test.
    """

    name: str
    role: str
    labels: str
    n_cases: int | None
    mean: float | None
    std: float | None
    cases: tuple[float, ...]
    scored: str
    low: float | None
    high: float | None
    site_best: float | None
    site_best_round: int | None
    test: dict[str, float | None]

    @property
    def unscored(self) -> str:
        """Words for a site whose score is not here."""
        return "kept by the site" if self.test.get("min_cases") else "not tested"


def span(low: float | None, high: float | None) -> str:
    """``0.810–0.930``."""
    return NOTHING if low is None or high is None else f"{low:.3f}–{high:.3f}"


def site_rows(run: Run) -> list[SiteRow]:
    """One row a site, labelled sites first."""
    tests, best = ((run.result or {}).get(key) or {} for key in ("test", "test_own"))
    return [_row(run, site, tests.get(site.name) or {}, best.get(site.name) or {}) for site in run.sites]


def _row(run: Run, site: Site, test: dict[str, Any], best: dict[str, Any]) -> SiteRow:
    score, numbers = run.score, {key: number(value) for key, value in test.items()}
    mean, std, low, high = (numbers.get(key or "") for key in (score.test, score.spread, score.low, score.high))
    if numbers.get("n_cases") == 1:
        std = None  # one case has no spread, though runs of an earlier FedMed say 0
    if mean is not None and std is not None:
        low, high = max(0.0, mean - std), min(1.0, mean + std)
    cases = column(site.cases, score.name) if test and score.spread else np.empty(0)
    n_cases, site_best_round = numbers.get("n_cases"), number(best.get("model_round"))
    return SiteRow(
        name=site.name,
        role=ROLES.get(site.role, site.role),
        labels=_labels(run, site, bool(n_cases)),
        n_cases=None if n_cases is None else int(n_cases),
        mean=mean,
        std=std,
        cases=tuple(cases[np.isfinite(cases)].tolist()),
        scored=decoder_source(test["decoder_of"]) if test.get("decoder_of") else "",
        low=low,
        high=high,
        site_best=number(best.get(score.test)),
        site_best_round=None if site_best_round is None else int(site_best_round),
        test=numbers,
    )


def _labels(run: Run, site: Site, tested: bool) -> str:
    """Say what became of a site's labels, as far as the run's records tell."""
    if site.role == "supervised":
        return "labelled, not used" if site in run.idle else "labelled"
    if run.used_labels(site):
        return "some, used in training"
    return "not used in training" if tested else NOTHING


def sites_of(run: Run) -> str:
    """Number of sites of a run, and names of those that contributed nothing."""
    idle = join([site.name for site in run.idle])
    return count(len(run.sites), "site") + (f", of which {idle} contributed nothing" if run.idle else "")


def screen_table(title: str, rows: Sequence[Mapping[str, str]], remarks: Sequence[str]) -> Table:
    """A table for a terminal, with remarks below it; a row is head of a column -> text."""
    table = Table(title=in_markup(title), title_justify="left", title_style="bold", caption_justify="left")
    table.box, table.padding = box.SIMPLE_HEAD, (0, 2, 0, 0)
    for head in rows[0] if rows else ():
        short = head == WORDS[0] and max(len(row[head]) for row in rows) <= SHORT
        justify: JustifyMethod = "left" if head in WORDS else "right"
        table.add_column(in_markup(head), justify=justify, overflow="fold", no_wrap=short)
    for row in rows:
        table.add_row(*(Text(in_lines(cell)) for cell in row.values()))
    # No markup: reasons hold names that sites sent.
    table.caption = Text("\n".join(map(in_terminal, remarks))) if remarks else None
    return table
