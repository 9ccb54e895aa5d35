"""What a site's check opens and lists of radiographs whose labels are classes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fedmed.checks.bins import Bins, Fact, summarise
from fedmed.checks.class_labels import judge_classes, judge_pictures, picture_table
from fedmed.checks.ct_images import judge_lists
from fedmed.checks.entries import Entry
from fedmed.checks.inspection import Reading
from fedmed.checks.radiographs import inspect_pictures
from fedmed.checks.site_findings import SiteFinding
from fedmed.checks.training import Measured
from fedmed.data.prepare.case import Case

READS = "cxr_classification"  # the bundle that reads radiographs where no job names one
PICTURE = 4 * 256**2  # bytes of a prepared radiograph, where no job says its size
FORMATS = ("DICOM", "PNG", "JPEG")
FACTS: tuple[Fact, ...] = (
    ("Pixels along the longer side", (128, 256, 512, 1024, 2048, 3072), lambda case: max(case.shape)),
    ("Pixels along the shorter side", (128, 256, 512, 1024, 2048, 3072), lambda case: min(case.shape)),
    ("Mean brightness, 0 (black) to 1", (0.2, 0.35, 0.5, 0.65, 0.8), lambda case: case.mean),
)


class RadiographInspection:
    """Pictures, opened by the reader of the bundle that will train on them."""

    def open(self, entries: Sequence[Entry], how: Reading) -> dict[Entry, Case]:
        return inspect_pictures(entries, how.bundle or READS, how.bundles, how.workers, how.track)

    def judge(self, cases: Mapping[Entry, Case], size: int | None) -> list[SiteFinding]:
        return [*judge_pictures(cases, size), *judge_lists(cases, "image")]

    def judge_labels(
        self, entries: Sequence[Entry], classes: Sequence[str] | None, role: str | None, chooses: bool
    ) -> Iterator[SiteFinding]:
        return judge_classes(entries, classes, role, chooses)

    def rows(self, entries: Sequence[Entry], cases: Sequence[Case]) -> list[tuple[str, ...]]:
        return picture_table(entries, cases)

    def bins(self, cases: Sequence[Case]) -> list[Bins]:
        """Size, brightness and format over the usable images."""
        formats = Counter(case.kind for case in cases if case.usable)
        found = [Bins("Files", tuple((name, formats[name]) for name in FORMATS))] if formats else []
        return summarise(cases, FACTS) + found

    def cache_bytes(
        self,
        entries: Sequence[Entry],
        cases: Mapping[Entry, Case],
        sample: Sequence[Entry],
        measured: Measured | None,
    ) -> int:
        """Prepared radiographs are all of one size."""
        used = {entry.image for entry in entries if entry not in cases or cases[entry].usable}
        return round((measured.cache_bytes if measured and measured.cache_bytes else PICTURE) * len(used))
