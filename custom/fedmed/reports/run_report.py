"""Base of a run's report: a class for each kind of task, which the kind names by path."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from rich.table import Table

from fedmed.bundles.bundle import Bundle
from fedmed.class_paths import import_named
from fedmed.kinds.find_kind import kind_of, load_kind, made
from fedmed.reports.palette import VARIABLES
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import number
from fedmed.reports.training_scalars import reported
from fedmed.reports.words import duration, join, size

UNSCORED = "fedmed.reports.unscored_report.UnscoredReport"  # by path, as the others: it derives from what is here


class Chart(NamedTuple):
    """Drawing of a chart, and the text above it on the page."""

    draw: Callable[[Run], Figure]
    caption: str = ""

    @classmethod
    def of(cls, draw: Callable[..., Figure], *values: Any) -> "Chart":
        """Chart of given values, whatever the run."""
        return cls(lambda _: draw(*values))


Images = Callable[[int], Any]  # place in the testing list, from 0 -> image as the network receives it, channels first


class LegendEntry(NamedTuple):
    """Meaning of a colour in pictures, shown as an ``area``, a ``line`` or ``dashes``."""

    name: str
    colour: str
    shape: str = "area"

    @property
    def css(self) -> str:
        """The colour as the page's theme has it."""
        return f"var({VARIABLES[self.colour]})" if self.colour in VARIABLES else self.colour


class RunReport:
    """Report of one kind of run; a kind's class says the rest.

    Attributes:
        template: its part of the page, the result and the pictures.
        images: what the sites have, in the plural.
        case_note: sentences on :meth:`case_picture`, for the page of a hospital.
    """

    template = ""
    images = "images"
    case_note: ClassVar[str] = ""

    def summary(self, run: Run) -> str:
        """One plain sentence made of the run's numbers."""
        raise NotImplementedError

    def note(self, run: Run) -> str:
        """Say how the model was chosen."""
        raise NotImplementedError

    def table(self, run: Run) -> Table:
        """The per-site table for a terminal."""
        raise NotImplementedError

    def figures(self, run: Run) -> list[tuple[str, str]]:
        """Figures for the top of the page that only this kind of run has."""
        raise NotImplementedError

    def facts(self, run: Run) -> list[tuple[str, str]]:
        """The short figures at the top of the page."""
        sent = sum((r.bytes_down or 0) + (r.bytes_up or 0) for r in run.rounds)
        seconds = number((run.result or {}).get("seconds_total")) or sum(r.seconds or 0 for r in run.rounds)
        done = f"{len(run.rounds)}" + ("" if len(run.rounds) == run.total_rounds else f" of {run.total_rounds}")
        first = [("rounds", done), ("sites", str(len(run.sites)))]
        return [*first, *self.figures(run), ("sent in all", size(sent or None)), ("time", duration(seconds))]

    def training(self, run: Run) -> str:
        """Say what the chart of the training shows."""
        return f"Each site's mean {join([scalar.label for scalar in reported(run)])} in a round"

    def values(self, run: Run) -> dict[str, Any]:
        """Values for the template."""
        return {}

    def findings(self, run: Run) -> list[str]:
        """Sentences on what the scores alone let a reader overlook; below the table of sites."""
        return []

    def charts(self, run: Run) -> dict[str, Chart]:
        """Charts beside those that every run has."""
        return {}

    def case_columns(self, run: Run, cases: pd.DataFrame) -> list[str]:
        """Columns of ``cases.csv`` without whose numbers a case has no score; none where cases have none at all."""
        return []

    def weighted(self, run: Run, cases: pd.DataFrame, weights: np.ndarray) -> np.ndarray:
        """The run's score of n cases that all have the columns, each as often as a weight says.

        Args:
            run, cases: the run, and the cases of one site.
            weights: (R, n), 0 or more.

        Returns:
            (R,); NaN where such cases have no score.
        """
        raise NotImplementedError

    def figure(self, run: Run, site: Site) -> Figure | None:
        """A site's pictures side by side, for a PNG; None where there are none."""
        return None

    def case_picture(self, run: Run, models: Mapping[str, Path], name: str, images: Images | None) -> Markup:
        """One case by two models or more, as HTML; empty where there is nothing to draw.

        Args:
            run: as the hospital alone knows it.
            models: title of each -> what its recorder wrote of the case.
            name: of the picture, unlike all others of the page.
            images: gives an image of the testing list, of videos a clip of frames whose places go on over all videos.

        Raises:
            DataError: a file is missing or damaged.
        """
        return Markup("")

    def case_legend(self, run: Run) -> list[LegendEntry]:
        """Colours of :meth:`case_picture`."""
        return []


class ReportSection(Protocol):
    """Section of a report on one method; the method names it by class path in ``report_sections``."""

    def charts(self, run: Run) -> dict[str, Chart]:
        """Name -> chart; one with the name of a chart that every run has takes its place."""

    def columns(self, run: Run) -> dict[str, dict[str, float]]:
        """Head of a column of the table of sites that nobody scores -> site -> number."""

    def notes(self, run: Run) -> list[str]:
        """Sentences below that table."""


def sections_of(run: Run) -> Sequence[ReportSection]:
    """Sections that the run's method adds to its report."""
    return [import_named(path)() for path in run.method.report_sections()]


def report_of(run: Run) -> RunReport:
    """Return the report of the run's kind, or where no site was ever to be asked for a score, one without scores.

    Raises:
        BundleError: the run's kind or bundle is not installed here.
    """
    if run.kind:
        kind = load_kind(run.kind, f"{run.folder}: 'kind' in run.json")
    else:  # of an earlier FedMed: the kind of the bundle as it is installed here
        kind = kind_of(Bundle(run.bundle, run.overlays))
    report: RunReport = made(kind.report if run.validated or run.tested or not kind.labelled else UNSCORED)
    return report
