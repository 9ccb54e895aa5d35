"""Kinds of runs: what their pages, tables and sentences are made of. The first that suits a run reports it."""

from collections.abc import Callable
from typing import Any, Protocol

from matplotlib.figure import Figure
from rich.table import Table

from fedmed.reports.classification import Classification
from fedmed.reports.pretraining import Pretraining
from fedmed.reports.run import Run, Site
from fedmed.reports.segmentation import Segmentation


class Kind(Protocol):
    """What a report needs to know of one kind of run.

    Attributes:
        template: its part of the page, the result and the pictures.
    """

    template: str

    def suits(self, run: Run) -> bool:
        """Whether this is how to report the run."""

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


KINDS: tuple[Kind, ...] = (Pretraining(), Classification(), Segmentation())


def kind_of(run: Run) -> Kind:
    """The kind that reports a run, by what the run holds."""
    return next(kind for kind in KINDS if kind.suits(run))
