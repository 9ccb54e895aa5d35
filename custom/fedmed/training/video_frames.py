"""What a model makes of each frame of a list of videos, one video at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events
from numpy.typing import NDArray
from torch import Tensor

from fedmed.data.cases import plain
from fedmed.errors import DataError, FedMedError
from fedmed.training.label_counts import macro

Read = Callable[[Tensor, Tensor], Sequence[Tensor]]


@dataclass(frozen=True, eq=False)
class SeenVideo:
    """One video, T frames of it.

    Attributes:
        place: in the list, counted from 0.
        times: (T,) seconds from its first frame.
        parts: what was read of its batches, on the CPU, (T, ...) each.
    """

    place: int
    times: NDArray[np.float64]
    parts: tuple[Tensor, ...]


class VideoFrames:
    """Hands over each video of an evaluator's run as soon as its last frame was seen; no more than one is in memory.

    The evaluator's batches have ``video`` (B,), the place in the list, and ``time`` (B, k) of whose last frame the
    label is, as :func:`fedmed.data.video.clip_loader.frame_loader` gives them in the order of videos; its output has
    logits ``pred`` and ``label``, (B, ...) both. It must not decollate.

    Args:
        done: is given each video.
        read: what of logits and labels is kept of a batch, (B, ...) each; it refuses (FedMedError) other shapes.
    """

    def __init__(self, done: Callable[[SeenVideo], None], read: Read) -> None:
        self.done, self.read = done, read
        self._parts: list[tuple[Tensor, ...]] = []
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
        logits, labels = (plain(output[name]).detach() for name in ("pred", "label"))
        usable = torch.isfinite(logits).flatten(1).all(dim=1)
        found = [part.cpu() for part in (usable, *self.read(logits, labels))]
        videos, times = batch["video"], batch["time"][:, -1]
        for place in torch.unique_consecutive(videos).tolist():
            if place != self._place:
                self._hand_over()
                if place < self._place:
                    raise FedMedError("frames of a video do not follow one another; score by frame_loader")
                self._place = place
            own = videos == place
            self._parts.append((times[own], *(part[own] for part in found)))

    def _hand_over(self, _: Any = None) -> None:
        if not self._parts:
            return
        times, usable, *parts = (torch.cat(part) for part in zip(*self._parts, strict=True))
        self._parts = []
        if bad := int((~usable).sum()):
            raise DataError(
                f"the model's output is NaN or infinite for {bad} of {len(usable)} frames of video number "
                f"{self._place}; use another checkpoint, or correct the video if it is the only one"
            )
        self.done(SeenVideo(self._place, times.double().numpy(), tuple(parts)))


class VideoMean:
    """Mean over videos of a score of each, of an evaluator's run, as its key metric.

    Args:
        read: see :class:`VideoFrames`.
        score: of a video, a number.
    """

    def __init__(self, read: Read, score: Callable[[SeenVideo], float]) -> None:
        self.values: list[float] = []
        self.frames = VideoFrames(lambda video: self.values.append(score(video)), read)

    def attach(self, engine: Engine, name: str) -> None:
        """Add to an evaluator; the score is ``engine.state.metrics[name]``, NaN without videos."""
        engine.add_event_handler(Events.STARTED, self.values.clear)
        self.frames.attach(engine)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self._finish, name)

    def _finish(self, engine: Engine, name: str) -> None:
        engine.state.metrics[name] = macro(np.array(self.values))
