"""Frames of videos in batches, and what a recorder knows of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events
from numpy.typing import NDArray
from torch import Tensor

from fedmed.data.listed_images import plain
from fedmed.data.video.clips import unit_float
from fedmed.errors import DataError, FedMedError
from fedmed.training.label_counts import macro

Read = Callable[[Tensor, Tensor], Sequence[Tensor]]


class StackedFrames:
    """``prepare_batch`` of an engine: the frames of a clip become channels of one image, and may be changed first.

    Args:
        views: (B, k, 3, H, W) uint8 -> float, such as :class:`fedmed.data.augment.clip_views.ClipViews`, with masks
            (B, n, H, W) both, one draw a clip; None = frames as they are.
    """

    def __init__(self, views: Callable[..., Any] | None = None) -> None:
        self.views = views

    def __call__(
        self, batch: Mapping[str, Any], device: torch.device | str | None = None, non_blocking: bool = False, **_: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Return images (B, k · 3, H, W) float32 in [0, 1], oldest frame first, and labels, None without.

        Labels are those of the last frame: (B, J) float32, 0 or 1, of uint8; classes (B,) or masks (B, H, W), which
        move with their frame, stay whole numbers (int64). FedMedError for a batch that does not hold clips.
        """
        clips, labels = batch["image"], batch.get("labels")
        self._check(clips)
        clips = clips.to(device, non_blocking=non_blocking)
        if labels is not None:
            labels = labels.to(device, non_blocking=non_blocking)
        if self.views is not None and labels is not None and labels.ndim == 4:
            images, labels = self.views(clips, labels)
        else:
            images = unit_float(clips) if self.views is None else self.views(clips)
        images = images.flatten(1, 2)
        if labels is None:
            return images, None
        return images, labels[:, -1].float() if labels.dtype == torch.uint8 else labels[:, -1]

    def _check(self, clips: Tensor) -> None:
        if clips.ndim != 5:
            raise FedMedError(f"a batch has shape {tuple(clips.shape)}; clips (B, k, 3, H, W) are needed")


class FrameBatches(StackedFrames):
    """The same of clips of one frame, for networks of single frames: (B, 3, H, W); FedMedError for longer clips."""

    def _check(self, clips: Tensor) -> None:
        if clips.ndim != 5 or clips.shape[1] != 1:
            raise FedMedError(f"a batch has shape {tuple(clips.shape)}; clips of one frame are needed: size 1")


class ClipBatches(StackedFrames):
    """``prepare_batch`` for networks of single frames that learn from clips: all frames, one after the other."""

    def __call__(
        self, batch: Mapping[str, Any], device: torch.device | str | None = None, non_blocking: bool = False, **_: Any
    ) -> tuple[Tensor, None]:
        """Return images (B · k, 3, H, W) float32 in [0, 1] of clips (B, k, 3, H, W), and no labels."""
        clips = batch["image"].to(device, non_blocking=non_blocking)
        return (unit_float(clips) if self.views is None else self.views(clips)).flatten(0, 1), None


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
    label is, as :func:`fedmed.data.video.clips.frame_loader` gives them in the order of videos; its output has
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
        parts = [part.cpu() for part in (usable, *self.read(logits, labels))]
        videos, times = batch["video"], batch["time"][:, -1]
        for place in torch.unique_consecutive(videos).tolist():
            if place != self._place:
                self._hand_over()
                if place < self._place:
                    raise FedMedError("frames of a video do not follow one another; score by frame_loader")
                self._place = place
            rows = videos == place
            self._parts.append((times[rows], *(part[rows] for part in parts)))

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
