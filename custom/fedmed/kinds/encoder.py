"""Training without labels that leaves an encoder, from which a task is learnt later."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedmed.bundles.score import Score
from fedmed.data.datalist import UnlabelledEntry
from fedmed.kinds.kind import CardWords, Kind


@dataclass(frozen=True)
class Encoder(Kind):
    """Features of an image, which nobody scores. An overlay names this kind; ``base`` is the bundle's own."""

    labelled = False
    report = "fedmed.reports.unscored_report.UnscoredReport"
    exporter = "fedmed.export.exporter.EncoderExporter"
    card = CardWords(
        how_to_run="run_encoder.md.j2",
        labels="labels",
        case="image",
        unfit="any use as it is: it names no class.\n"
        "A classifier must be trained on it first, and tested where it will be used.",
        output="features; no classes yet (pre-trained for: {names})",
        trained="trained without",
    )

    def further_scores(self, score: Score) -> tuple[Score, ...]:
        """Those of its base: nobody measures them, and the table of sites has their columns all the same."""
        return self.base.further_scores(score) if self.base else ()

    def form(self, classes: Sequence[str] | None = None) -> UnlabelledEntry:
        return UnlabelledEntry()
