"""The evaluation of several labels at once on videos: scores of each video, and of all its frames by counts."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmed.errors import DataError, FedMedError
from fedmed.training.label_counts import COUNTED, LabelCounts, average_precisions, macro
from fedmed.training.video_frames import SeenVideo, VideoMean
from fedmed.training.video_recorder import PROBABILITY, TRUTH, Recorded, VideoRecorder

log = logging.getLogger("fedmed.site")

THRESHOLD = 0.5


@dataclass(frozen=True, eq=False)
class LabelledFrames:
    """The frames of one video: truth bool (T, J), probabilities float64 (T, J), from which a label counts as seen."""

    truth: NDArray[np.bool_]
    probabilities: NDArray[np.float64]
    threshold: float = THRESHOLD

    @classmethod
    def of(cls, video: SeenVideo, threshold: float) -> "LabelledFrames":
        """What :func:`logits_and_presence` read of a video."""
        logits, truth = video.parts
        return cls(truth.numpy(), torch.sigmoid(logits.double()).numpy(), threshold)

    @cached_property
    def counts(self) -> LabelCounts:
        """Of the frames."""
        return LabelCounts.of(self.truth, self.probabilities >= self.threshold)

    @property
    def f1(self) -> float:
        """Mean over labels in truth or prediction; 1 where there are none: nothing was there, nothing was called."""
        f1 = macro(self.counts.f1("skip"))
        return 1.0 if np.isnan(f1) else f1

    def scores(self) -> dict[str, float]:
        """``f1``, ``precision``, ``recall`` and ``ap``: means over the labels for which the video has them.

        Precision over labels that are predicted, recall and average precision over those in truth.
        """
        return {
            "f1": self.f1,
            "precision": macro(self.counts.precision("skip")),
            "recall": macro(self.counts.recall("skip")),
            "ap": macro(self.average_precisions),
        }

    @cached_property
    def average_precisions(self) -> np.ndarray:
        """(J,); NaN for a label that no frame has."""
        return average_precisions(self.truth, self.probabilities, "skip")


class PresenceRecorder(VideoRecorder):
    """Scores videos whose frames have a logit for each of several labels, 0 or 1.

    ``cases.csv`` also has ``tp_<label>``, ``fp_<label>``, ``fn_<label>`` and ``ap_<label>`` of each video;
    ``frames/<number>_<video>.csv`` has ``second``, ``true_<label>`` (0, 1) and ``p_<label>``; a picture has ``times``
    (T,), ``truth`` (T, J), ``probabilities`` (T, J), ``classes`` (J,), ``threshold``, ``f1`` and ``case``.

    :meth:`finish` also gives ``pooled_f1_zero`` and ``pooled_f1_skip``: mean over the labels of the F1 of all frames
    together, a label that is neither there nor called counting 0 or not at all; ``tp_<label>``, ``fp_<label>``,
    ``fn_<label>``: counts of frames, which add up over sites; ``ap_<label>``: mean over the videos that show it.

    Args:
        folder, names, classes: see :class:`fedmed.training.video_recorder.VideoRecorder`.
        threshold: probability from which a label counts as seen.
    """

    scores = ("f1", "precision", "recall", "ap")
    spreads = ("f1",)

    def __init__(
        self, folder: Path | str, names: Sequence[str], classes: Sequence[str], threshold: float = THRESHOLD
    ) -> None:
        self.threshold = threshold
        super().__init__(folder, names, classes)
        self.columns = tuple(f"{name}_{label}" for name in (*COUNTED, "ap") for label in classes)

    def begin(self) -> None:
        super().begin()
        self.counts = LabelCounts.none(len(self.classes))

    def read(self, logits: Tensor, labels: Tensor) -> Sequence[Tensor]:
        return logits_and_presence(logits, labels)

    def record(self, video: SeenVideo) -> Recorded:
        frames = LabelledFrames.of(video, self.threshold)
        if frames.truth.shape[1] != len(self.classes):
            raise DataError(f"{frames.truth.shape[1]} labels a frame, {len(self.classes)} classes; correct 'classes'")
        self.counts += frames.counts
        header = [*(TRUTH + name for name in self.classes), *(PROBABILITY + name for name in self.classes)]
        pairs = zip(frames.truth, frames.probabilities, strict=True)
        lines = ((*(str(int(v)) for v in true), *(f"{p:.6f}" for p in values)) for true, values in pairs)
        shown = {"times": video.times, "truth": frames.truth, "probabilities": frames.probabilities}
        precisions = zip(self.classes, frames.average_precisions, strict=True)
        row = frames.scores() | frames.counts.numbers(self.classes) | {f"ap_{name}": ap for name, ap in precisions}
        return Recorded(row, header, lines, shown | {"threshold": self.threshold})

    def together(self) -> dict[str, float]:
        if absent := [name for name, n in zip(self.classes, self.counts.tp + self.counts.fn, strict=True) if not n]:
            log.warning("no test frame shows '%s'; scores of videos leave it out", "', '".join(absent))
        pooled = {f"pooled_f1_{absent}": macro(self.counts.f1(absent)) for absent in ("zero", "skip")}
        own = {f"ap_{name}": macro(np.array([row[f"ap_{name}"] for row in self.rows])) for name in self.classes}
        return pooled | own | self.counts.numbers(self.classes)


class VideoF1(VideoMean):
    """Mean over videos of the mean F1 over labels, as an evaluator's key metric; see ``f1_mean`` above.

    Args:
        threshold: probability from which a label counts as seen.
    """

    def __init__(self, threshold: float = THRESHOLD) -> None:
        super().__init__(logits_and_presence, lambda video: LabelledFrames.of(video, threshold).f1)


def logits_and_presence(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, J), and which labels there are, bool (B, J); FedMedError for other shapes."""
    if logits.ndim != 2 or labels.shape != logits.shape:
        raise FedMedError(f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)}; use (B, J) for both")
    return logits, labels > 0.5
