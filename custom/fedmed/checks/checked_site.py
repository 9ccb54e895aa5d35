"""All that a check finds at a site."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedmed.checks.bundle_demands import BundleDemands
from fedmed.checks.entries import MEASURED, Cases, Entry
from fedmed.checks.inspection import Inspection
from fedmed.checks.machine import Connection, MachineFacts, Space
from fedmed.checks.measurement import Measured, choose_sample
from fedmed.checks.part_in_job import PartInJob
from fedmed.checks.site_findings import SiteFinding, problems
from fedmed.data.classes import labelled_fraction
from fedmed.data.datalist import HELD_OUT, UNLABELED
from fedmed.data.patients import TrainedOn, folded
from fedmed.data.prepare.case import Case
from fedmed.kinds.find_kind import made
from fedmed.kinds.kind import Kind
from fedmed.kinds.segmentation_3d import Segmentation3D
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.settings.site import SiteConfig


@dataclass
class CheckedSite:
    """All that was found at a site. Only :mod:`fedmed.checks.hospital_report` decides what of it may leave.

    Attributes:
        counts: list -> number of entries.
        work, demands: the site's part in the job, and what the job's bundle asks of it.
        kind: of the task; what the datalist looks like where no job says it.
        findings: what is wrong or worth a look.
        left_out: parts that were not checked, of ``PARTS``.
    """

    site: SiteConfig
    counts: Mapping[str, int] = field(default_factory=dict)
    cases: Cases = field(default_factory=dict)
    entries: Sequence[Entry] = ()
    work: PartInJob | None = None
    demands: BundleDemands = field(default_factory=BundleDemands)
    kind: Kind = field(default_factory=Segmentation3D)
    role: str | None = None
    measured: Measured | None = None
    spaces: Sequence[Space] = ()
    machine: MachineFacts | None = None
    connection: Connection | None = None
    findings: list[SiteFinding] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def inspection(self) -> Inspection:
        inspection: Inspection = made(self.kind.inspects)
        return inspection

    @property
    def images(self) -> list[Case]:
        """Opened cases, each file once."""
        return list({id(case): case for case in self.cases.values()}.values())

    @property
    def trained_on(self) -> int:
        """Images that the site's rounds read: usable, or at least listed."""
        return len({entry.image for entry in self._trained})

    @property
    def trains_on(self) -> TrainedOn:
        """Images that the site's rounds read, with or without labels, and their patients: for its own screen."""
        if self.role not in TRAINING_ROLES:
            return TrainedOn()
        entries = [entry for entry in self.entries if entry not in self.cases or self.cases[entry].usable]
        people = {str(e.image): None if e.patient is None else folded(e.patient) for e in entries}
        what = entries[0].main if entries else "image"
        labelled, unlabelled, held_out = (
            {entry.image: entry for entry in entries if entry.list in lists}
            for lists in (("training",), (UNLABELED,), HELD_OUT)
        )
        if self.role == "supervised":
            return TrainedOn.of(self._chosen(list(labelled.values())), (), people, len(labelled), what)
        if not (self.kind.labelled and self.kind.both_lists):  # one list, and no label is looked at
            labelled, unlabelled = {}, {path: e for path, e in (unlabelled | labelled).items() if path not in held_out}
        return TrainedOn.of(map(str, labelled), map(str, unlabelled), people, what=what)

    def _chosen(self, entries: Sequence[Entry]) -> list[str]:
        """The labelled images that the job takes, as training chooses them."""
        if self.demands.fraction >= 1 or not all(entry.label for entry in entries):
            return [str(entry.image) for entry in entries]
        names = list(dict.fromkeys([*(self.demands.classes or ()), *sorted(str(entry.label) for entry in entries)]))
        cases = [{"image": str(entry.image), "label": names.index(str(entry.label))} for entry in entries]
        return [case["image"] for case in labelled_fraction(cases, self.demands.fraction, self.demands.fraction_seed)]

    @property
    def samples(self) -> int:
        """Samples of one epoch: images, or the frames of videos, as many as the measured ones let expect."""
        measured = [entry for entry in self.sample if entry.list == "training"]
        if self.measured is None or self.measured.frames is None or not measured:
            return self.trained_on
        mean = self.measured.frames / len(measured)  # frames grow as their bytes do
        return self.inspection.cache_bytes(self._trained, self.cases, measured, mean)

    @property
    def sample(self) -> list[Entry]:
        """The entries on which the site's work is measured."""
        return choose_sample(self.entries, self.cases, self.role or "", self.kind.labelled)

    @property
    def _trained(self) -> list[Entry]:
        lists = ("training",) if self.kind.labelled else MEASURED["unsupervised"]
        return [e for e in self.entries if e.list in lists and (e not in self.cases or self.cases[e].usable)]

    @property
    def ready(self) -> bool:
        """True where nothing must be solved before the site joins."""
        return not problems(self.findings)
