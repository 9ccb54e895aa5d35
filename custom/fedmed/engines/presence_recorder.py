"""The evaluation of several labels at once on videos: scores of each video, and of all its frames by counts."""

import csv
import logging
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ignite.engine import Engine, Events

from fedmed.engines.evaluation_files import pictured, require_all, write_evaluation, write_table
from fedmed.engines.label_counts import LabelCounts, macro
from fedmed.engines.video_frames import THRESHOLD, ScoredVideo, VideoFrames
from fedmed.errors import DataError

log = logging.getLogger("fedmed.site")

SCORES = ("f1", "precision", "recall", "ap")
TRUTH, PROBABILITY = "true_", "p_"  # before the name of a label, of columns


class PresenceRecorder:
    """Scores each video of an evaluator's run; :meth:`finish` writes the table of videos and returns means.

    FedMed never sends these files: ``cases.csv``, a line a video with its scores; ``frames/<number>_<video>.csv``, a
    line a frame with ``second``, ``true_<label>`` (0, 1) and ``p_<label>``; ``best.npz``, ``median.npz`` and
    ``worst.npz`` with ``times`` (T,), ``truth`` (T, J), ``probabilities`` (T, J), ``classes`` (J,), ``threshold``,
    ``f1`` and ``case``. Only counts and scores of earlier videos stay in memory.

    Args:
        folder: where to write.
        names: the videos' names, in the order in which the evaluator sees them.
        classes: names of the labels, in the order of the network's outputs.
        threshold: probability from which a label counts as seen.

    The evaluator: see :class:`fedmed.engines.video_frames.VideoFrames`.
    """

    def __init__(
        self, folder: Path | str, names: Sequence[str], classes: Sequence[str], threshold: float = THRESHOLD
    ) -> None:
        self.folder, self.names, self.classes = Path(folder), list(names), list(classes)
        self.frames = VideoFrames(self._record, threshold)
        self._begin()

    def attach(self, engine: Engine) -> None:
        """Add to an evaluator."""
        engine.add_event_handler(Events.STARTED, self._begin)
        self.frames.attach(engine)

    def finish(self) -> dict[str, float | int]:
        """Write the table and the pictures; return only numbers about all videos together.

        Returns:
            ``f1_mean``, ``precision_mean``, ``recall_mean``, ``ap_mean``: means over the videos of their means over
            labels, see :meth:`ScoredVideo.scores`, and ``f1_std`` of two videos or more. ``pooled_f1_zero`` and
            ``pooled_f1_skip``: mean over the labels of the F1 of all frames together, a label that is neither there
            nor called counting 0 or not at all. ``tp_<label>``, ``fp_<label>``, ``fn_<label>``: counts of frames,
            which add up over sites. ``ap_<label>``: mean over the videos that show it. ``n_frames`` and ``n_cases``,
            of videos.

        Raises:
            DataError: no video was evaluated, or not as many as were named, or the folder cannot be written.
        """
        require_all(len(self.rows), len(self.names), "table of labels")
        table = [(name, str(row["n_frames"]), *(_text(row[s]) for s in SCORES)) for name, row in self._named()]
        shown = pictured([row["f1"] for row in self.rows])
        pictures = {kind: self._picture(place) for kind, place in shown.items()}
        write_evaluation(self.folder, ["case", "n_frames", *SCORES], table, pictures)
        return self._means() | self._of_frames()

    def _begin(self) -> None:
        self.counts = LabelCounts.none(len(self.classes))
        self.rows: list[dict[str, Any]] = []

    def _named(self) -> Any:
        return zip(self.names, self.rows, strict=True)

    def _file(self, place: int) -> Path:
        return frames_file(self.folder, place, self.names[place])

    def _record(self, video: ScoredVideo) -> None:
        if video.place >= len(self.names) or video.place != len(self.rows):
            missing = "more videos than names" if video.place >= len(self.names) else "a video without a usable frame"
            raise DataError(f"evaluation met {missing}, at video number {video.place}; correct the list 'testing'")
        if video.truth.shape[1] != len(self.classes):
            raise DataError(f"{video.truth.shape[1]} labels a frame, {len(self.classes)} classes; correct 'classes'")
        self.counts += video.counts
        own = {"n_frames": len(video.times), "labels_ap": video.average_precisions}
        self.rows.append(video.scores() | own)
        header = ["second", *(TRUTH + name for name in self.classes), *(PROBABILITY + name for name in self.classes)]
        lines = zip(video.times, video.truth, video.probabilities, strict=True)
        write_table(
            self._file(video.place),
            header,
            ((f"{t:.3f}", *(str(int(v)) for v in true), *(f"{p:.6f}" for p in values)) for t, true, values in lines),
        )

    def _picture(self, place: int) -> dict[str, Any]:
        """Read again: the frames of all videos would need too much memory."""
        with self._file(place).open(newline="", encoding="utf-8") as stream:
            values = np.array([line for line in csv.reader(stream)][1:], dtype=np.float64)
        j = len(self.classes)
        return {
            "times": values[:, 0],
            "truth": values[:, 1 : 1 + j].astype(np.uint8),
            "probabilities": values[:, 1 + j :],
            "classes": np.array(self.classes),
            "threshold": self.frames.threshold,
            "f1": self.rows[place]["f1"],
            "case": self.names[place],
        }

    def _means(self) -> dict[str, float | int]:
        means = {f"{name}_mean": macro(np.array([row[name] for row in self.rows])) for name in SCORES}
        spread = {"f1_std": statistics.stdev(row["f1"] for row in self.rows)} if len(self.rows) > 1 else {}
        return _known(means | spread) | {"n_cases": len(self.rows)}

    def _of_frames(self) -> dict[str, float | int]:
        if absent := [name for name, n in zip(self.classes, self.counts.tp + self.counts.fn, strict=True) if not n]:
            log.warning("no test frame shows '%s'; scores of videos leave it out", "', '".join(absent))
        pooled = {f"pooled_f1_{absent}": macro(self.counts.f1(absent)) for absent in ("zero", "skip")}
        aps = np.stack([row["labels_ap"] for row in self.rows])
        own = {f"ap_{name}": macro(aps[:, label]) for label, name in enumerate(self.classes)}
        frames = sum(row["n_frames"] for row in self.rows)
        return _known(pooled | own) | self.counts.numbers(self.classes) | {"n_frames": frames}


class VideoF1:
    """Mean over videos of the mean F1 over labels, of an evaluator's run, as its key metric; see ``f1_mean`` above.

    Args:
        threshold: probability from which a label counts as seen.
    """

    def __init__(self, threshold: float = THRESHOLD) -> None:
        self.values: list[float] = []
        self.frames = VideoFrames(lambda video: self.values.append(video.f1), threshold)

    def attach(self, engine: Engine, name: str) -> None:
        """Add to an evaluator; the score is ``engine.state.metrics[name]``, NaN without videos."""
        engine.add_event_handler(Events.STARTED, self.values.clear)
        self.frames.attach(engine)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self._finish, name)

    def _finish(self, engine: Engine, name: str) -> None:
        engine.state.metrics[name] = macro(np.array(self.values))


def frames_file(folder: Path, place: int, name: str) -> Path:
    """The table of a video's frames in the folder of an evaluation; ``place``: of the video in its list, from 0."""
    return folder / "frames" / f"{place + 1:03d}_{name}.csv"


def _known(values: dict[str, float]) -> dict[str, float | int]:
    return {name: value for name, value in values.items() if np.isfinite(value)}


def _text(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.6f}"
