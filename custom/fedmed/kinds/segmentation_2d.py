"""Regions of several classes in frames of a video, such as the parts of instruments; masks are files by time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmed.bundles.score import DICE, Score
from fedmed.data.datalist import UnlabelledEntry, Video
from fedmed.kinds.kind import MASKS, CardWords, Kind


@dataclass(frozen=True)
class Segmentation2D(Kind):
    """A model marks regions of several classes in frames; a site's labels are masks of some frames of each video.

    Scores are those of each class and frame first, then means over the classes that occur in a frame's truth or
    prediction, over the frames of a video and over the videos of a site. Distances are in pixels of the frames that the
    network sees.
    """

    scores = (
        DICE,
        Score("iou", "IoU", "iou_mean", "iou_std"),
        Score("hd95", "HD95 (pixels)", "hd95_mean"),
        Score("assd", "ASSD (pixels)", "assd_mean"),
    )
    distances = ("hd95", "assd")
    settings = {"classes": "the names of what 1, 2, … stand for in masks, in the order of the outputs after the first"}
    readers = {"video": "fedmed.checks.video_inspection.MaskInspection"}
    measures = {"video": "fedmed.data.fingerprint.videos.measure_masks"}
    report = "fedmed.reports.segmentation_2d_report.Segmentation2DReport"
    exporter = "fedmed.export.exporter.FrameMaskExporter"
    proposal = MASKS
    card = CardWords(
        how_to_run="run_frame_masks.md.j2",
        labels="masks",
        case="video",
        sample="frame",
        inputs="videos",
        unfit="measuring or steering anything where nobody has\nchecked the masks.",
        output="label map: {names}",
        numbered=True,
        task="Segmentation of {names} in frames of {modality} videos",
        values="{names}; 0 is everything else",
    )

    def form(self, classes: Sequence[str] | None = None) -> UnlabelledEntry:
        return Video(labels=False, masks=True)

    def validation_error(self, classes: Sequence[str]) -> str:
        taken = [name for name in classes if name in ("mean", "std")]  # after the name of a score they are the site's
        return f"'classes' names '{taken[0]}', which a site's scores are called by; take another name" if taken else ""

    def looks_like(self, labelled: Sequence[Mapping[str, Any]], unlabelled: Sequence[Mapping[str, Any]]) -> bool:
        """Videos with masks and no tables."""
        videos = bool(labelled) and all("video" in entry for entry in (*labelled, *unlabelled))
        return videos and all("masks" in entry and "labels" not in entry for entry in labelled)

    def numbers(self, classes: Sequence[str]) -> tuple[str, ...]:
        return ("n_frames", *(f"{score.name}_{label}" for label in classes for score in self.scores))
