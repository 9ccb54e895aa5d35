"""The evaluation of a model on videos, whatever it says of a frame: scores of each video, files, and means."""

import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from ignite.engine import Engine, Events
from torch import Tensor

from fedmed.errors import DataError
from fedmed.training.evaluation_files import pictured, require_all, write_evaluation, write_table
from fedmed.training.label_counts import macro
from fedmed.training.video_frames import SeenVideo, VideoFrames

TRUTH, PROBABILITY = "true_", "p_"  # before the name of a label, of columns of tables of frames


class Recorded(NamedTuple):
    """Of one video.

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
    line a frame; ``best.npz``, ``median.npz`` and ``worst.npz``. A picture is of a
    video, with its ``case``, ``classes``, first score and what a subclass shows.

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
        """Add to an evaluator."""
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
        found = {f"{score}_mean": macro(np.array(values[score])) for score in self.scores}
        if len(self.rows) > 1:
            found |= {f"{score}_std": statistics.stdev(values[score]) for score in self.spreads}
        known = {name: value for name, value in (found | self.together()).items() if np.isfinite(value)}
        return known | {"n_frames": sum(row["n_frames"] for row in self.rows), "n_cases": len(self.rows)}

    def begin(self) -> None:
        """Forget the videos of an earlier run."""
        self.rows: list[dict[str, Any]] = []

    @abstractmethod
    def read(self, logits: Tensor, labels: Tensor) -> Sequence[Tensor]:
        """What is kept of a batch: see :class:`fedmed.training.video_frames.VideoFrames`."""

    @abstractmethod
    def record(self, video: SeenVideo) -> Recorded:
        """Score a video."""

    @abstractmethod
    def together(self) -> dict[str, float]:
        """Further numbers about all videos."""

    def pictures(self) -> dict[str, dict[str, Any]]:
        """Name -> content of each picture; of the best, the median and the worst video."""
        first, classes = self.scores[0], np.array(self.classes)
        shown = pictured([row[first] for row in self.rows])
        return {
            kind: {"case": self.names[n], "classes": classes, first: self.rows[n][first], **self.rows[n]["shown"]}
            for kind, n in shown.items()
        }

    def _record(self, video: SeenVideo) -> None:
        if video.place >= len(self.names) or video.place != len(self.rows):
            missing = "more videos than names" if video.place >= len(self.names) else "a video without a usable frame"
            raise DataError(f"evaluation met {missing}, at video number {video.place}; correct the list 'testing'")
        row, header, lines, shown = self.record(video)
        self.rows.append({**row, "shown": shown, "n_frames": len(video.times)})
        timed = ((f"{second:.3f}", *line) for second, line in zip(video.times, lines, strict=True))
        write_table(frames_file(self.folder, video.place, self.names[video.place]), ["second", *header], timed)


def frames_file(folder: Path, place: int, name: str) -> Path:
    """The table of a video's frames in the folder of an evaluation; ``place``: of the video in its list, from 0."""
    return folder / "frames" / f"{place + 1:03d}_{name}.csv"


def text(value: float) -> str:
    """A cell of a table; empty for what is not a number."""
    if isinstance(value, int):
        return str(value)
    return "" if np.isnan(value) else f"{value:.6f}"
