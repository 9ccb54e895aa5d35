"""Base of the inspections of a site's check: which images they open, and what they list of them."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from fedmed.checks.bins import Bins, Fact, judge_classes, picture_table, summarise
from fedmed.checks.entries import Cases, Entry
from fedmed.checks.site_findings import SiteFinding, data_finding
from fedmed.data.datalist import HELD_OUT
from fedmed.data.patients import IN_TWO_LISTS
from fedmed.data.prepare.case import Case
from fedmed.data.prepare.pool import Track


class Inspection(ABC):
    """Opens and judges the images of one kind; a kind names such a class by path.

    Attributes:
        noun: what an image is called.
        facts: what the page tells of single cases.
    """

    noun: ClassVar[str]
    facts: ClassVar[tuple[Fact, ...]]

    @abstractmethod
    def open(
        self,
        entries: Sequence[Entry],
        workers: int = 1,
        track: Track | None = None,
        bundle: str | None = None,
        site_bundles: Path | None = None,
    ) -> dict[Entry, Case]:
        """Inspect the files of all entries; one that several entries name is opened once. Nothing is written.

        Args:
            entries, workers, track: what is listed, number of processes, what shows progress.
            bundle: whose reader opens the images, None where no job says it.
            site_bundles: the site's own folder of bundles.

        Raises:
            BundleError: the bundle cannot be opened.
            DataError: a worker process died.
        """

    @abstractmethod
    def judge_images(self, cases: Cases, size: int | None) -> Iterator[SiteFinding]:
        """Judge single images; ``size``: pixels of the square that they are fitted into."""

    def judge(self, cases: Cases, size: int | None) -> list[SiteFinding]:
        """Everything that is wrong with or odd about the inspected entries, their lists included."""
        findings = [*self.judge_images(cases, size)]
        contents = {entry: case.content for entry, case in cases.items() if case.content}
        findings += self._in_two_lists("copy", contents)
        if unnamed := [entry for entry in cases if entry.patient is None]:
            text = (
                f"{len(unnamed)} entries have no 'patient', the first is {unnamed[0].where}; without it nobody can "
                "tell whether a patient is in two lists: add it, or make sure yourself"
            )
            findings.append(data_finding("no_patient", text))
        return findings

    def judge_patients(self, entries: Sequence[Entry]) -> Iterator[SiteFinding]:
        """Find patients who are trained on and scored by; no file is opened."""
        return self._in_two_lists("patient", {entry: entry.owner for entry in entries if entry.owner is not None})

    def _in_two_lists(self, kind: str, identities: Mapping[Entry, str]) -> Iterator[SiteFinding]:
        """A patient or a scan may be trained on with and without its mask; it may not be trained on and scored by."""
        groups: dict[str, list[Entry]] = defaultdict(list)
        for entry, identity in identities.items():
            groups[identity].append(entry)
        for group in groups.values():
            lists = {entry.list for entry in group}
            shown = "; ".join(entry.where for entry in group[:4]) + ("; …" if len(group) > 4 else "")
            first, *others = ((entry.list, entry.number) for entry in group)
            names = " or ".join(sorted({f"'{entry.patient}'" for entry in group}))
            what = f"patient {names}" if kind == "patient" else f"the same {self.noun}"
            if len(lists) > 1 and lists & set(HELD_OUT):
                remedy = IN_TWO_LISTS if kind == "patient" else "a score would be too good: keep one list"
                text = f"{what} is in two lists: {shown}; {remedy}"
                yield data_finding(kind, text, *first, also=tuple(others))
            elif kind == "copy" and len(group) > 1:
                text = f"{what} is listed more than once: {shown}; keep one if that was not meant"
                yield data_finding("twice", text, *first, also=tuple(others))

    def judge_rate(self, cases: Cases, rate: float | None) -> Iterator[SiteFinding]:
        """Find a video's labels of frames that the job does not take; ``rate``: frames a second, None without a job."""
        return iter(())

    def judge_labels(
        self, entries: Sequence[Entry], classes: Sequence[str] | None, role: str | None, chooses: bool
    ) -> Iterator[SiteFinding]:
        """Find what is wrong with labels that are words; see :func:`fedmed.checks.bins.judge_classes`."""
        return iter(())

    def judge_times(self, entries: Sequence[Entry], rate: float | None) -> Iterator[SiteFinding]:
        """Find labels by time that lack the time of a frame that the job takes; only tables are opened.

        Args:
            entries: those whose labels the job reads.
            rate: frames a second that it takes of a video, None where no job says it or each is taken at its own time.
        """
        return iter(())

    @abstractmethod
    def rows(self, entries: Sequence[Entry], cases: Sequence[Case]) -> list[tuple[str, ...]]:
        """A table for the hospital's own screen, heads first; empty where nothing was opened."""

    def bins(self, cases: Sequence[Case]) -> list[Bins]:
        """All that the page tells of single cases."""
        return summarise(cases, self.facts)

    @abstractmethod
    def cache_bytes(self, entries: Sequence[Entry], cases: Cases, sample: Sequence[Entry], mean: float | None) -> int:
        """Estimate the size of all ``entries`` when they are prepared.

        Args:
            entries, cases: what is listed, and what was inspected of it.
            sample, mean: those that were prepared to measure them, and their mean size, None if there are none.
        """


class ClassInspection(Inspection):
    """Base of what opens images whose labels are classes."""

    def judge_labels(
        self, entries: Sequence[Entry], classes: Sequence[str] | None, role: str | None, chooses: bool
    ) -> Iterator[SiteFinding]:
        return judge_classes(entries, classes, role, chooses)

    def rows(self, entries: Sequence[Entry], cases: Sequence[Case]) -> list[tuple[str, ...]]:
        return picture_table(entries, cases)


def with_lists(cases: dict[Entry, Case]) -> dict[Entry, Case]:
    """Note in each case the lists that hold it, and whose it is."""
    for entry, case in cases.items():
        case.lists.append(entry.list)
        case.patient = entry.patient or case.patient
    return cases
