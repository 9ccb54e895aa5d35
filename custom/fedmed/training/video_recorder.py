"""Files that an evaluation of videos leaves at a site: labels of each frame along time, scores of each video."""

import logging
import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from ignite.engine import Engine, Events
from numpy.typing import NDArray
from torch import Tensor

from fedmed.errors import DataError, FedMedError
from fedmed.training.case_recorder import (
    EVERY_CASE,
    pictured,
    require_all,
    write_evaluation,
    write_pictures,
    write_table,
)
from fedmed.training.kept_features import FEATURES_FILE, KeptFeatures
from fedmed.training.label_counts import COUNTED, Confusion, LabelCounts, average_precisions, macro
from fedmed.training.video_frames import SeenVideo, VideoFrames, VideoMean

TRUTH, PROBABILITY = "true_", "p_"  # before the name of a label, of columns of tables of frames
log = logging.getLogger("fedmed.site")
THRESHOLD = 0.5


class Recorded(NamedTuple):
    """Scores and frames of one video.

    Attributes:
        row: its scores and what else is kept in memory, by name.
        header, lines: a table with a line a frame.
        shown: arrays for its picture, kept in memory too.
    """

    row: Mapping[str, Any]
    header: Sequence[str]
    lines: Iterable[Sequence[str]]
    shown: Mapping[str, Any] = MappingProxyType({})


class VideoRecorder(ABC):
    """Scores each video of an evaluator's run; :meth:`finish` writes the table of videos and returns means.

    FedMed never sends these files: ``cases.csv``, a line a video with its scores; ``frames/<number>_<video>.csv``, a
    line a frame; ``best.npz``, ``median.npz`` and ``worst.npz``, pictures of a video with its ``case``, ``classes``,
    first score and what a subclass shows.

    Args:
        folder: where to write.
        names: the videos' names, in the order in which the evaluator sees them.
        classes: names of what is told apart, in the order of the network's outputs.

    Attributes:
        scores: of a video; by the first one pictures are chosen.
        columns: further numbers of a video that the table of videos has.
        spreads: those whose standard deviation over videos is told too.
        truth: what a video needs for its scores.

    The evaluator: see :class:`fedmed.training.video_frames.VideoFrames`.
    """

    scores: ClassVar[tuple[str, ...]]
    spreads: ClassVar[tuple[str, ...]]
    truth: ClassVar[str] = "table of labels"

    def __init__(self, folder: Path | str, names: Sequence[str], classes: Sequence[str]) -> None:
        self.folder, self.names, self.classes = Path(folder), list(names), list(classes)
        self.columns: tuple[str, ...] = ()
        self.frames = VideoFrames(self._record, self.read)
        self.begin()

    def attach(self, engine: Engine) -> None:
        engine.add_event_handler(Events.STARTED, self.begin)
        self.frames.attach(engine)

    def finish(self) -> dict[str, float | int]:
        """Write the table and the pictures; return only numbers about all videos together.

        Returns:
            ``<score>_mean``: means over the videos, and ``<score>_std`` of two videos or more; what :meth:`together`
            gives; ``n_frames``, and ``n_cases``, of videos. What is not a number is left out.

        Raises:
            DataError: no video was evaluated, or not as many as were named, or the folder cannot be written.
        """
        require_all(len(self.rows), len(self.names), self.truth)
        named = zip(self.names, self.rows, strict=True)
        header = ["n_frames", *self.scores, *self.columns]
        table = [(name, *(text(row[column]) for column in header)) for name, row in named]
        write_evaluation(self.folder, ["case", *header], table, self.pictures())
        values = {score: [row[score] for row in self.rows] for score in self.scores}
        numbers = {f"{score}_mean": macro(np.array(values[score])) for score in self.scores}
        if len(self.rows) > 1:
            numbers |= {f"{score}_std": statistics.stdev(values[score]) for score in self.spreads}
        known = {name: value for name, value in (numbers | self.together()).items() if np.isfinite(value)}
        return known | {"n_frames": sum(row["n_frames"] for row in self.rows), "n_cases": len(self.rows)}

    def begin(self) -> None:
        """Forget the videos of an earlier run."""
        self.rows: list[dict[str, Any]] = []

    @abstractmethod
    def read(self, logits: Tensor, labels: Tensor) -> Sequence[Tensor]:
        """Return what is kept of a batch: see :class:`fedmed.training.video_frames.VideoFrames`."""

    @abstractmethod
    def record(self, video: SeenVideo) -> Recorded:
        """Score a video."""

    @abstractmethod
    def together(self) -> dict[str, float]:
        """Return further numbers about all videos."""

    def pictures(self) -> dict[str, dict[str, Any]]:
        """Return name -> content of each picture: of the best, the median and the worst video."""
        shown = pictured([row[self.scores[0]] for row in self.rows])
        return {kind: self.picture(n) for kind, n in shown.items()}

    def picture(self, place: int) -> dict[str, Any]:
        """Return the content of a picture of a video; ``place``: of it in the list, from 0."""
        first, row = self.scores[0], self.rows[place]
        return {"case": self.names[place], "classes": np.array(self.classes), first: row[first], **row["shown"]}

    def write_every_case(self) -> None:
        """Write a picture of each video, ``every_case/1.npz`` and so on in the order of the list.

        Raises:
            DataError: the folder cannot be written.
        """
        for place in range(len(self.rows)):  # one in memory at a time
            write_pictures(self.folder / EVERY_CASE, {str(place + 1): self.picture(place)})

    def _record(self, video: SeenVideo) -> None:
        if video.place >= len(self.names) or video.place != len(self.rows):
            missing = "more videos than names" if video.place >= len(self.names) else "a video without a usable frame"
            raise DataError(f"evaluation met {missing}, at video number {video.place}; correct the list 'testing'")
        row, header, lines, shown = self.record(video)
        self.rows.append({**row, "shown": shown, "n_frames": len(video.times)})
        timed = ((f"{second:.3f}", *line) for second, line in zip(video.times, lines, strict=True))
        write_table(frames_file(self.folder, video.place, self.names[video.place]), ["second", *header], timed)


def frames_file(folder: Path, place: int, name: str) -> Path:
    """Return the path of the table of a video's frames; ``place``: of the video in its list, from 0."""
    return folder / "frames" / f"{place + 1:03d}_{name}.csv"


def text(value: float) -> str:
    """Return a cell of a table; empty for what is not a number."""
    if isinstance(value, int):
        return str(value)
    return "" if np.isnan(value) else f"{value:.6f}"


class PhaseRecorder(VideoRecorder):
    """Scores videos whose frames have logits of several phases, of which one is true.

    ``frames/<number>_<video>.csv`` has ``second``, ``true_phase``, a name, and ``p_<phase>``; a picture has ``times``
    (T,), ``truth`` (T,) and ``called`` (T,), places in ``classes`` (C,), ``f1`` and ``case``. With ``features``,
    ``features.npz`` has what these say of frames of all videos, and ``classes``.

    :meth:`finish` also gives ``pooled_f1`` and ``pooled_accuracy`` of all frames together, and
    ``frames_<phase>><phase>``: how many frames of the first were called the second, counts that add up over sites.

    Args:
        folder, names, classes: as of the base class.
        features: what keeps the frames' features; None = they are not looked at.
    """

    scores = ("f1", "accuracy", "precision", "recall")
    spreads = ("f1", "accuracy")

    def __init__(
        self, folder: Path | str, names: Sequence[str], classes: Sequence[str], features: KeptFeatures | None = None
    ) -> None:
        self.features = features
        super().__init__(folder, names, classes)

    def attach(self, engine: Engine) -> None:
        if self.features:
            self.features.attach(engine)
        super().attach(engine)

    def begin(self) -> None:
        super().begin()
        self.confusion = Confusion.none(len(self.classes))

    def read(self, logits: Tensor, labels: Tensor) -> Sequence[Tensor]:
        parts = logits_and_phases(logits, labels)
        return (*parts, self.features.of_batch()) if self.features else parts

    def record(self, video: SeenVideo) -> Recorded:
        logits, truth = video.parts[:2]
        if logits.shape[1] != len(self.classes):
            raise DataError(f"{logits.shape[1]} outputs a frame, {len(self.classes)} classes; correct 'classes'")
        confusion, called = confusion_of(video), logits.argmax(dim=1)
        self.confusion += confusion
        if self.features:
            self.features.keep(video, video.parts[2], truth)
        values = torch.softmax(logits.double(), dim=1).tolist()
        pairs = zip(truth.tolist(), values, strict=True)
        lines = ((self.classes[true], *(f"{p:.6f}" for p in row)) for true, row in pairs)
        shown = {"times": video.times, "truth": truth.short().numpy(), "called": called.short().numpy()}
        header = [f"{TRUTH}phase", *(PROBABILITY + name for name in self.classes)]
        return Recorded(confusion.scores(), header, lines, shown)

    def finish(self) -> dict[str, float | int]:
        """Do as the base class, and write the picture of the features."""
        scores = super().finish()
        if self.features:
            write_pictures(self.folder, {FEATURES_FILE: {**self.features.content(), "classes": np.array(self.classes)}})
        return scores

    def together(self) -> dict[str, float]:
        scores = self.confusion.scores()
        pooled = {f"pooled_{name}": scores[name] for name in ("f1", "accuracy")}
        return pooled | self.confusion.numbers(self.classes)


class PhaseScore(VideoMean):
    """Mean over videos of a score of phases, as an evaluator's key metric; see ``f1_mean`` and its like above.

    Args:
        name: ``f1``, ``accuracy``, ``precision`` or ``recall``.

    Raises:
        FedMedError: another name.
    """

    def __init__(self, name: str = "f1") -> None:
        if name not in PhaseRecorder.scores:
            raise FedMedError(f"PhaseScore: name is {name!r}; use one of {', '.join(PhaseRecorder.scores)}")
        super().__init__(logits_and_phases, lambda video: confusion_of(video).scores()[name])


def logits_and_phases(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (B, C) and phases (B,), whole numbers; FedMedError for others."""
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or labels.is_floating_point():
        raise FedMedError(
            f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)} of {labels.dtype}; use (B, C) and whole "
            "numbers (B,)"
        )
    return logits, labels


def confusion_of(video: SeenVideo) -> Confusion:
    """Return the confusion of what :func:`logits_and_phases` read; the phase with the highest logit is called."""
    logits, truth = video.parts[:2]
    return Confusion.of(truth.numpy(), logits.argmax(dim=1).numpy(), logits.shape[1])


@dataclass(frozen=True, eq=False)
class LabelledFrames:
    """The frames of one video: truth bool (T, J), probabilities float64 (T, J), from which a label counts as seen."""

    truth: NDArray[np.bool_]
    probabilities: NDArray[np.float64]
    threshold: float = THRESHOLD

    @classmethod
    def of(cls, video: SeenVideo, threshold: float) -> "LabelledFrames":
        """Take what :func:`logits_and_presence` read of a video."""
        logits, truth = video.parts
        return cls(truth.numpy(), torch.sigmoid(logits.double()).numpy(), threshold)

    @cached_property
    def counts(self) -> LabelCounts:
        """Counts of the frames."""
        return LabelCounts.of(self.truth, self.probabilities >= self.threshold)

    @property
    def f1(self) -> float:
        """Mean over labels in truth or prediction; 1 where there are none: nothing was there, nothing was called."""
        f1 = macro(self.counts.f1("skip"))
        return 1.0 if np.isnan(f1) else f1

    def scores(self) -> dict[str, float]:
        """Return ``f1``, ``precision`` over labels that are predicted, ``recall`` and ``ap`` over those in truth."""
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
        of_labels = {f"ap_{name}": macro(np.array([row[f"ap_{name}"] for row in self.rows])) for name in self.classes}
        return pooled | of_labels | self.counts.numbers(self.classes)


class VideoF1(VideoMean):
    """Mean over videos of the mean F1 over labels, as an evaluator's key metric; see ``f1_mean`` above.

    Args:
        threshold: probability from which a label counts as seen.
    """

    def __init__(self, threshold: float = THRESHOLD) -> None:
        super().__init__(logits_and_presence, lambda video: LabelledFrames.of(video, threshold).f1)


def logits_and_presence(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (B, J), and which labels there are, bool (B, J); FedMedError for other shapes."""
    if logits.ndim != 2 or labels.shape != logits.shape:
        raise FedMedError(f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)}; use (B, J) for both")
    return logits, labels > 0.5
