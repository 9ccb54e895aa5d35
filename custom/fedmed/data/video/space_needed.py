"""Foretell what prepared videos take on disk."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedmed.data.video.frame_grid import frame_grid
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.source import VideoSource, open_video


@dataclass(frozen=True)
class SpaceNeeded:
    """What prepared videos take on disk."""

    frames: int
    height: int
    width: int
    rate: float | None

    @property
    def bytes(self) -> int:
        return self.frames * self.height * self.width * 3

    def words(self) -> str:
        """Such as "27.8 GB: 184500 frames of 224 x 224 pixels, 1 a second"."""
        frames = f"{self.frames} frames of {self.height} x {self.width} pixels"
        frames += "" if self.rate is None else f", {self.rate:g} a second"
        return f"{self.bytes / 1e9:.3g} GB: {frames}"


def space_needed(sources: Iterable[Path | str], settings: FrameSettings) -> SpaceNeeded:
    """Foretell what videos take once prepared, from what their headers say of their length; no frame is decoded.

    Raises:
        DataError: a video cannot be opened, or does not say how long it is.
    """
    frames = 0
    for source in sources:
        video = open_video(source, settings.names_rate)
        frames += max(1, video.count() if settings.rate is None else _taken(video, settings.rate))
    return SpaceNeeded(frames, *settings.size, settings.rate)


def _taken(video: VideoSource, rate: float) -> int:
    grid = frame_grid(video.steady_rate(), rate)
    return math.ceil((video.seconds() - grid.slack) * grid.rate)
