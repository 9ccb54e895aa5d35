"""One class a frame of a video, such as the phase of an operation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedmed.bundles.score import Score
from fedmed.data.datalist import UnlabelledEntry, Video
from fedmed.kinds.kind import SCORES, CardWords, Kind, Proposal


@dataclass(frozen=True)
class Phases(Kind):
    """A model says which phase each frame is of; a site's labels are a table by time for each video.

    Scores are those of each video first, over the phases that occur in its truth or prediction, then their mean over
    the videos of a site. Which phases were taken for which leaves the site too, as counts of frames, so that the scores
    of all sites' frames together are known without pooling predictions.
    """

    scores = (
        Score("f1", "F1", "f1_mean", "f1_std"),
        Score("accuracy", "accuracy", "accuracy_mean", "accuracy_std"),
        Score("precision", "precision", "precision_mean"),
        Score("recall", "recall", "recall_mean"),
        Score("pooled", "F1 of all frames", "pooled_f1"),
    )
    counted = ("n_", "frames_")
    settings = {"classes": "the names of the phases, as the sites' tables spell them, in the order of the outputs"}
    readers = {"video": "fedmed.checks.video_inspection.PhaseInspection"}
    measures = {"video": "fedmed.data.fingerprint.videos.measure_phases"}
    report = "fedmed.reports.video_report.PhasesReport"
    exporter = "fedmed.export.exporter.ClassificationExporter"
    proposal: ClassVar[Proposal | None] = SCORES
    tells = (
        "frames_<phase>><phase> count the frames of all test videos by what was true and what was called: they tell "
        "how long each phase took. Of a list with one video, they and all scores are that video's."
    )
    card = CardWords(
        how_to_run="run_phases.md.j2",
        labels="tables of phases",
        case="video",
        sample="frame",
        inputs="videos",
        unfit="operations of another course.\nEvery frame gets a phase, whatever it shows; somebody must look at the "
        "video.",
        output="a probability each: {names}",
    )

    def form(self, classes: Sequence[str] | None = None) -> UnlabelledEntry:
        return Video()

    def validation_error(self, classes: Sequence[str]) -> str:
        return f"'classes' names {classes[0]} alone; phases are two or more" if len(classes) == 1 else ""

    def numbers(self, classes: Sequence[str]) -> tuple[str, ...]:
        counts = [f"frames_{true}>{called}" for true in classes for called in classes]
        return ("pooled_accuracy", "n_frames", *counts)
