"""One of several classes for a whole image: the label of an entry is the name of its class."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmed.bundles.score import Score
from fedmed.data.datalist import ClassEntry, UnlabelledEntry, is_word
from fedmed.kinds.kind import SCORES, CardWords, Kind, Range

PICTURES = (".png", ".jpg", ".jpeg", ".dcm", ".dicom")


@dataclass(frozen=True)
class Classification(Kind):
    """A model gives a probability to each class of an image."""

    scores = (
        Score("auroc", "AUROC", "auroc", low="auroc_low", high="auroc_high"),
        Score("accuracy", "accuracy", "accuracy", low="accuracy_low", high="accuracy_high"),
    )
    settings = {"classes": "the names of the classes, in the order of the network's outputs"}
    readers = {
        "radiograph": "fedmed.checks.radiograph_inspection.RadiographInspection",
        "volume": "fedmed.checks.ct_inspection.ClassifiedCTInspection",
    }
    measures = {
        "radiograph": "fedmed.data.fingerprint.pictures.measure",
        "volume": "fedmed.data.fingerprint.volumes.measure",
    }
    report = "fedmed.reports.classification_report.ClassificationReport"
    exporter = "fedmed.export.exporter.ClassificationExporter"
    proposal = SCORES
    card = CardWords(
        how_to_run="run_classification.md.j2",
        labels="labels",
        case="image",
        unfit="findings that are none of its classes.\nA probability is not a finding, and every image gets one, "
        "whatever it shows. A reader decides.",
        output="a probability each: {names}",
    )

    def validation_error(self, classes: Sequence[str]) -> str:
        return f"'classes' names {classes[0]} alone; a classifier needs two or more" if len(classes) == 1 else ""

    def form(self, classes: Sequence[str] | None = None) -> UnlabelledEntry:
        return ClassEntry(None if classes is None else tuple(classes))

    def looks_like(self, labelled: Sequence[Mapping[str, Any]], unlabelled: Sequence[Mapping[str, Any]]) -> bool:
        """Labels that are words and no files, or pictures without any label."""
        labels = [entry["label"] for entry in labelled if "label" in entry]
        if labels:
            return all(map(is_word, labels))
        images = [str(entry.get("image", "")).lower() for entry in (*labelled, *unlabelled)]
        return bool(images) and all(image.endswith(PICTURES) for image in images)

    def numbers(self, classes: Sequence[str]) -> tuple[str, ...]:
        return ("ece", "brier")

    def ranges(self, score: Score, classes: Sequence[str]) -> dict[str, Range]:
        return {**super().ranges(score, classes), "brier": Range(0, 2)}
