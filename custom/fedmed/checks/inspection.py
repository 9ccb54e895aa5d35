"""What a site's check needs of a kind of task: which images it opens, and what it lists of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fedmed.checks.bins import Bins
from fedmed.checks.entries import Entry
from fedmed.checks.site_findings import SiteFinding
from fedmed.checks.training import Measured
from fedmed.data.prepare.case import Case
from fedmed.data.prepare.pool import Track


@dataclass(frozen=True)
class Reading:
    """How images are opened.

    Attributes:
        bundle: whose reader opens them, None where no job says it.
        bundles: the site's own folder of bundles.
        workers: processes.
        track: shows progress.
    """

    bundle: str | None = None
    bundles: Path | None = None
    workers: int = 1
    track: Track | None = None


class Inspection(Protocol):
    """Opens and judges the images of one kind; a kind names such a class by path."""

    def open(self, entries: Sequence[Entry], how: Reading) -> dict[Entry, Case]:
        """Inspect the files of all entries; one that several entries name is opened once."""

    def judge(self, cases: Mapping[Entry, Case], size: int | None) -> list[SiteFinding]:
        """Everything that is wrong with or odd about the inspected entries.

        Args:
            cases: the entries.
            size: pixels of the square that an image is fitted into, if it is.
        """

    def judge_labels(
        self, entries: Sequence[Entry], classes: Sequence[str] | None, role: str | None, chooses: bool
    ) -> Iterator[SiteFinding]:
        """What is wrong with labels that are words; see :func:`fedmed.checks.class_labels.judge_classes`."""

    def rows(self, entries: Sequence[Entry], cases: Sequence[Case]) -> list[tuple[str, ...]]:
        """A table for the hospital's own screen, heads first; empty where nothing was opened."""

    def bins(self, cases: Sequence[Case]) -> list[Bins]:
        """All that the page tells of single cases."""

    def cache_bytes(
        self,
        entries: Sequence[Entry],
        cases: Mapping[Entry, Case],
        sample: Sequence[Entry],
        measured: Measured | None,
    ) -> int:
        """Estimate the size of all prepared cases, from those of the sample if they were measured."""
