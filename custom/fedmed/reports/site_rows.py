"""Numbers and sentences of a report: plain values, no layout."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fedmed.reports.run import Run, Site
from fedmed.reports.run_files import column, number
from fedmed.reports.words import NOTHING, duration, size

ROLES = {"supervised": "supervised", "unsupervised": "unsupervised", "evaluate": "evaluation only"}
LABELS = {
    "supervised": "labelled",
    "unsupervised": "not used in training",
    "evaluate": "not in training",
}


@dataclass(frozen=True)
class SiteRow:
    """One line of the final table: scores in 0..1, None where the site was not tested.

    Attributes:
        low, high: the 95 % interval, or one standard deviation on either side of the mean.
        cases: the score of each case, of a score that every case has.
        test: every number that the site told of its test.
    """

    name: str
    role: str
    labels: str
    n_cases: int | None
    mean: float | None
    std: float | None
    cases: tuple[float, ...]
    decoder_of: str | None = None  # whose private layers scored it, if not its own
    low: float | None = None
    high: float | None = None
    test: dict[str, float | None] = field(default_factory=dict)

    @property
    def scored(self) -> str:
        """In words, with whose decoder the site was scored; empty if with its own."""
        return f"with {self.decoder_of}'s decoder" if self.decoder_of else ""

    @property
    def interval(self) -> str:
        """``0.81–0.93``."""
        return span(self.low, self.high)

    def span(self, low: str, high: str) -> str:
        """The same of another number of the test, by the keys of its ends."""
        return span(self.test.get(low), self.test.get(high))


def span(low: float | None, high: float | None) -> str:
    """``0.81–0.93``."""
    return NOTHING if low is None or high is None else f"{low:.3f}–{high:.3f}"


def site_rows(run: Run) -> list[SiteRow]:
    """One row a site, labelled sites first."""
    tests = (run.result or {}).get("test") or {}
    return [_row(run, site, tests.get(site.name) or {}) for site in run.sites]


def _row(run: Run, site: Site, test: dict[str, Any]) -> SiteRow:
    score, n_cases = run.score, number(test.get("n_cases"))
    told = {key: number(value) for key, value in test.items()}
    mean, std, low, high = (told.get(key) for key in (score.test, score.spread, score.low, score.high))
    if mean is not None and score.spread:
        low, high = max(0.0, mean - (std or 0.0)), min(1.0, mean + (std or 0.0))
    cases = column(site.cases, score.name) if test and score.spread else []
    return SiteRow(
        name=site.name,
        role=ROLES.get(site.role, site.role),
        labels=LABELS.get(site.role, "unknown"),
        n_cases=None if n_cases is None else int(n_cases),
        mean=mean,
        std=std,
        cases=tuple(value for value in cases if value is not None),
        decoder_of=str(test["decoder_of"]) if test.get("decoder_of") else None,
        low=low,
        high=high,
        test=told,
    )


@dataclass(frozen=True)
class Column:
    """One column of a table in a terminal: its head, and a row's text in it; numbers stand at the right."""

    head: str
    text: Callable[[Any], str]
    right: bool = False


def screen_table(title: str, columns: Sequence[Column], rows: Iterable[Any], remarks: Sequence[str]) -> Table:
    """A table for a terminal, with remarks below it."""
    style = {"title": title, "title_justify": "left", "title_style": "bold", "caption_justify": "left"}
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), **style)
    for head in columns:
        table.add_column(head.head, justify="right" if head.right else "left", no_wrap=not head.right)
    for row in rows:
        table.add_row(*(head.text(row) for head in columns))
    # No markup: reasons hold names that sites sent.
    table.caption = Text("\n".join(remarks)) if remarks else None
    return table


def facts(run: Run, told: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The short figures at the top of the page: what every run has, and between that what this one has to tell."""
    sent = sum((r.bytes_down or 0) + (r.bytes_up or 0) for r in run.rounds)
    seconds = number((run.result or {}).get("seconds_total")) or sum(r.seconds or 0 for r in run.rounds)
    return [
        ("rounds", f"{len(run.rounds)}" + ("" if len(run.rounds) == run.total_rounds else f" of {run.total_rounds}")),
        ("sites", str(len(run.sites))),
        *told,
        ("sent in all", size(sent or None)),
        ("time", duration(seconds)),
    ]
