"""Regions of a volume: one foreground in a CT, its masks as files."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedmed.bundles.score import DICE, HD95, Score
from fedmed.data.datalist import MaskEntry, UnlabelledEntry
from fedmed.kinds.kind import AMOUNT, MASKS, CardWords, Kind, Range


@dataclass(frozen=True)
class Segmentation3D(Kind):
    """A model marks a region in volumes; a site's labels are masks on the grid of their images."""

    both_lists = True
    scores = (DICE, HD95)
    distances = (HD95.name,)
    readers = {"volume": "fedmed.checks.ct_inspection.CTInspection"}
    measures = {"volume": "fedmed.data.fingerprint.volumes.measure"}
    report = "fedmed.reports.scored_report.SegmentationReport"
    exporter = "fedmed.export.exporter.SegmentationExporter"
    proposal = MASKS
    tells = "volume_error, the mean difference of predicted and true volumes in ml, hints at how much there is to mark."
    card = CardWords(
        how_to_run="run_segmentation.md.j2",
        labels="masks",
        case="case",
        unfit="measuring disease where nobody has\nchecked the masks. A mask is a proposal that a reader corrects.",
        output="label map: {names}",
        numbered=True,
        task="Segmentation of {names} in {modality} volumes",
        values="{names}; 0 is everything else",
    )

    def validation_error(self, classes: Sequence[str]) -> str:
        text = f"'classes' names {', '.join(classes)}; this kind of task marks one structure, so leave one of them"
        return text if len(classes) > 1 else ""

    def form(self, classes: Sequence[str] | None = None) -> UnlabelledEntry:
        return MaskEntry()

    def numbers(self, classes: Sequence[str]) -> tuple[str, ...]:
        return ("volume_error",)

    def ranges(self, score: Score, classes: Sequence[str]) -> dict[str, Range]:
        return {**super().ranges(score, classes), "volume_error": AMOUNT}
