"""What the report of a run is made of: a class for each kind of task, which the kind names by path."""

from collections.abc import Callable
from typing import Any, Protocol

from matplotlib.figure import Figure
from rich.table import Table

from fedmed.bundles.load import Bundle
from fedmed.kinds.find_kind import kind_of, load_kind, made
from fedmed.kinds.kind import Kind
from fedmed.reports.run import Run, Site
from fedmed.reports.unscored_report import UnscoredReport


class RunReport(Protocol):
    """What a report needs to know of one kind of run.

    Attributes:
        template: its part of the page, the result and the pictures.
    """

    template: str

    def summary(self, run: Run) -> str:
        """One plain sentence made of the run's numbers."""

    def note(self, run: Run) -> str:
        """How the model was chosen."""

    def facts(self, run: Run) -> list[tuple[str, str]]:
        """The short figures at the top of the page."""

    def table(self, run: Run) -> Table:
        """The per-site table for a terminal."""

    def training(self, run: Run) -> str:
        """What the chart of the training shows."""

    def values(self, run: Run) -> dict[str, Any]:
        """What the template needs."""

    def charts(self, run: Run) -> dict[str, Callable[[Run], Figure]]:
        """Charts beside those that every run has."""

    def figure(self, site: Site) -> Figure | None:
        """A site's pictures side by side, for a PNG; None where there are none."""


def report_of(run: Run) -> RunReport:
    """What reports a run: its kind's, or where no site was ever to be asked for a score, one without scores.

    Raises:
        BundleError: the run's kind is not installed here.
    """
    kind = kind_of_run(run)
    return made(kind.report) if run.scored or not kind.labelled else UnscoredReport()


def kind_of_run(run: Run) -> Kind:
    """The kind that the run's records name; in runs of an earlier FedMed, that of the bundle as it is installed here.

    Raises:
        BundleError: that kind or bundle is not installed here.
    """
    if run.kind:
        return load_kind(run.kind, f"{run.folder}: 'kind' in run.json")
    return kind_of(Bundle(run.bundle, run.overlays))
