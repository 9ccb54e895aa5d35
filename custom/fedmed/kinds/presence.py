"""Several labels at once for each frame of a video, such as the tools that are seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmed.bundles.score import Score
from fedmed.data.datalist import UnlabelledEntry, Video
from fedmed.kinds.kind import SEVERAL, CardWords, Kind


@dataclass(frozen=True)
class Presence(Kind):
    """A model gives each label of a frame a probability of its own; a site's labels are a table by time for each video.

    Scores are those of each video first, then their mean over the videos of a site. Counts of frames leave the site
    too, so that the score of all sites' frames together is known without pooling predictions.
    """

    scores = (
        Score("f1", "F1", "f1_mean", "f1_std"),
        Score("ap", "average precision", "ap_mean"),
        Score("pooled", "F1 of all frames", "pooled_f1_zero"),
        Score("pooled_skip", "F1 of all frames, absent left out", "pooled_f1_skip"),
    )
    counted = ("n_", "tp_", "fp_", "fn_")
    settings = {"classes": "the names of the labels, columns of the sites' tables, in the order of the outputs"}
    readers = {"video": "fedmed.checks.video_inspection.VideoInspection"}
    measures = {"video": "fedmed.data.fingerprint.videos.measure_tools"}
    report = "fedmed.reports.video_report.PresenceReport"
    exporter = "fedmed.export.exporter.ClassificationExporter"
    proposal = SEVERAL
    tells = (
        "tp_, fp_ and fn_ count the frames of all test videos in which a label was rightly called, wrongly called and "
        "missed: they tell how often each was there. Of a list with one video, they and all scores are that video's."
    )
    card = CardWords(
        how_to_run="run_presence.md.j2",
        labels="tables of labels",
        case="video",
        sample="frame",
        inputs="videos",
        unfit="labels that are none of its own.\nA probability is not an observation: somebody must look at the video.",
        output="a probability each, which do not sum to 1: {names}",
    )

    def form(self, classes: Sequence[str] | None = None) -> UnlabelledEntry:
        return Video()

    def looks_like(self, labelled: Sequence[Mapping[str, Any]], unlabelled: Sequence[Mapping[str, Any]]) -> bool:
        """Videos, with tables or without any labels."""
        entries = (*labelled, *unlabelled)
        tables = not labelled or any("labels" in entry for entry in labelled)
        return bool(entries) and tables and all("video" in entry for entry in entries)

    def numbers(self, classes: Sequence[str]) -> tuple[str, ...]:
        by_label = [f"{name}_{label}" for name in ("tp", "fp", "fn", "ap") for label in classes]
        return ("precision_mean", "recall_mean", "n_frames", *by_label)
