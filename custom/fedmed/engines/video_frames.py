"""What a model says of each frame of a list of videos, one video at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events
from numpy.typing import NDArray
from torch import Tensor

from fedmed.engines.label_counts import LabelCounts, average_precisions, macro
from fedmed.engines.trainer import plain
from fedmed.errors import DataError, FedMedError

THRESHOLD = 0.5


@dataclass(frozen=True, eq=False)
class ScoredVideo:
    """One video.

    Attributes:
        place: in the list, counted from 0.
        times: (T,) seconds from its first frame.
        truth: bool (T, J).
        probabilities: float64 (T, J).
        threshold: probability from which a label counts as seen.
    """

    place: int
    times: NDArray[np.float64]
    truth: NDArray[np.bool_]
    probabilities: NDArray[np.float64]
    threshold: float = THRESHOLD

    @cached_property
    def counts(self) -> LabelCounts:
        """Of its frames."""
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


class VideoFrames:
    """Hands over each video of an evaluator's run as soon as its last frame was seen; no more than one is in memory.

    The evaluator's batches have ``video`` (B,), the place in the list, and ``time`` (B, k) of whose last frame the
    label is, as :func:`fedmed.data.video.clip_loader.frame_loader` gives them in the order of videos; its output has
    logits ``pred`` and ``label``, both (B, J). It must not decollate.

    Args:
        done: is given each video.
        threshold: probability from which a label counts as seen.
    """

    def __init__(self, done: Callable[[ScoredVideo], None], threshold: float = THRESHOLD) -> None:
        self.done, self.threshold = done, threshold
        self._parts: list[tuple[Tensor, Tensor, Tensor]] = []
        self._place = -1

    def attach(self, engine: Engine) -> None:
        """Add to an evaluator, before what uses the videos at the end of its run."""
        engine.add_event_handler(Events.STARTED, self._begin)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self._note)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self._hand_over)

    def _begin(self) -> None:
        self._parts, self._place = [], -1

    def _note(self, engine: Engine) -> None:
        batch, output = engine.state.batch, engine.state.output
        if not isinstance(output, dict):
            raise FedMedError("videos are scored batch by batch; build the evaluator with decollate=False")
        logits, labels = plain(output["pred"]).detach().cpu(), plain(output["label"]).cpu() > 0.5
        if logits.ndim != 2 or labels.shape != logits.shape:
            raise FedMedError(f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)}; use (B, J) for both")
        videos, times = batch["video"], batch["time"][:, -1]
        for place in torch.unique_consecutive(videos).tolist():
            if place != self._place:
                self._hand_over()
                if place < self._place:
                    raise FedMedError("frames of a video do not follow one another; score by frame_loader")
                self._place = place
            own = videos == place
            self._parts.append((times[own], labels[own], logits[own]))

    def _hand_over(self, _: Any = None) -> None:
        if not self._parts:
            return
        times, labels, logits = (torch.cat(part) for part in zip(*self._parts, strict=True))
        self._parts = []
        if bad := int((~torch.isfinite(logits).all(dim=1)).sum()):
            raise DataError(
                f"the model's output is NaN or infinite for {bad} of {len(logits)} frames of video number "
                f"{self._place}; use another checkpoint, or correct the video if it is the only one"
            )
        probabilities = torch.sigmoid(logits.double()).numpy()
        self.done(ScoredVideo(self._place, times.double().numpy(), labels.numpy(), probabilities, self.threshold))
