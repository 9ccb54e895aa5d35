"""Frames of a video as they are kept: which it has, how they are extracted, and the space that they need."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmed.data.video.file_source import LONGEST, open_video, too_long
from fedmed.data.video.folder_source import FrameFolder
from fedmed.data.video.frame_settings import RULES, SAME, Frame, FrameSettings, frame_grid, matching_rules, picture_box
from fedmed.data.video.source import Damage, ShownFrame, VideoSource
from fedmed.errors import DataError

LONGEST_GAP = 3600.0  # seconds for which one frame may be shown
BORDER_FRAMES, BORDER_PIXELS = 16, 256  # from how many frames borders are found, and on which grid


@dataclass(frozen=True)
class StoredVideo:
    """A prepared video."""

    source: Path  # the file or folder that it was made of
    path: Path  # the memory map
    facts: Mapping[str, Any]  # see :meth:`Extraction.facts`

    @cached_property
    def frames(self) -> NDArray[np.uint8]:
        """(T, H, W, 3) uint8 RGB, read from disk where it is used; dropped frames are black."""
        shape = (self.facts["frames"], self.facts["height"], self.facts["width"], 3)
        return np.memmap(self.path, np.uint8, "r", shape=shape)

    @cached_property
    def kept(self) -> NDArray[np.bool_]:
        """(T,) which frames are not dropped."""
        kept = np.ones(self.facts["frames"], bool)
        kept[self.facts["dropped"]] = False
        return kept

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """(T,) seconds from the first frame."""
        rate = self.facts["rate"]
        return np.asarray(self.facts["times"]) if rate is None else np.arange(self.facts["frames"]) / rate

    @property
    def start(self) -> float:
        """The first frame's own time, in seconds: of a folder of frames that of its table or names, of a file 0."""
        return float(self.facts["first_second"]) if self.source.is_dir() else 0.0

    def __len__(self) -> int:
        return int(self.facts["frames"])

    def __getstate__(self) -> dict[str, Any]:
        # A pickled memory map would be a copy of all frames.
        return {name: value for name, value in self.__dict__.items() if name != "frames"}


class Extraction:
    """The frames of one video, to be gone through once; afterwards :meth:`facts`.

    **Rule.** Times count from the first frame. Frame k is the one that is shown at k / rate seconds: the last whose own
    time is not later. It is repeated while nothing new is shown, and the video ends where its last frame ends. One that
    does not say how long it is shown is shown as long as the mean frame. Of videos of 29.97 frames a second and the
    like each n-th is taken, see :func:`fedmed.data.video.frame_settings.frame_grid`.

    Args:
        path: a file, or a folder of frames.
        settings: size, rate (single pictures are taken once each instead), and what is cut off or dropped. Frames to be
            dropped come out black, so that frame k stays the one at k / rate seconds.

    Raises:
        DataError: the video cannot be read; while going through it: it is damaged and to be refused, holds no frames,
            its times stand still, it lasts more than two days, or one frame is shown for more than an hour.
    """

    def __init__(self, path: Path | str, settings: FrameSettings) -> None:
        self.path, self.settings = Path(path), settings
        self.source: VideoSource = open_video(path, settings.names_rate)
        wanted = None if self.source.single else settings.rate
        self.grid = None if wanted is None else frame_grid(self.source.steady_rate(), wanted)
        self.damage = Damage(self.path, refuse=settings.damage == "refuse")
        self.flagged: dict[str, list[int]] = {name: [] for name in RULES}
        self.count = self.repeated = 0
        self.times: list[float] = []  # of frames taken without a rate
        self.start = self.end = 0.0
        sampled = self.source.sample(BORDER_FRAMES, BORDER_PIXELS, BORDER_PIXELS) if settings.crop else []
        self.box = picture_box(sampled) if sampled else (0.0, 1.0, 0.0, 1.0)

    def __iter__(self) -> Iterator[Frame]:
        """Yield uint8 RGB frames (H, W, 3); each may be a read-only view that is valid until the next."""
        shown: ShownFrame | None = None
        read = 0
        for frame in self.source.frames(self.damage):
            read += 1
            if shown is None:
                self.start = frame.second
            else:
                yield from self._until(frame.second, shown)
            if frame.second - self.start > LONGEST:
                raise DataError(f"{self.path}: {too_long(frame.second - self.start)}")
            shown = frame
        if shown is None:
            raise DataError(f"{self.path}: none of its frames can be decoded; copy it again or remove the entry")
        if read > 1 and shown.second - self.start < SAME:
            raise DataError(f"{self.path}: all {read} frames have the same time (frame rate 0); write it with times")
        usual = (shown.second - self.start) / max(1, read - 1)
        self.end = shown.until if shown.until > shown.second else shown.second + max(usual, 2 * SAME)
        yield from self._until(self.end, shown)

    def facts(self) -> dict[str, Any]:
        """Facts about the frames, as plain values; seconds are those of the video, from its first frame."""
        damage = self.damage
        return {
            "frames": self.count,
            "height": self.settings.size[0],
            "width": self.settings.size[1],
            "rate": None if self.grid is None else self.grid.rate,
            "single": self.source.single,
            "seconds": round(self.end - self.start, 6),
            "first_second": round(self.start, 6),
            "times": self.times if self.grid is None else None,
            "repeated": self.repeated,
            "source_sizes": [list(size) for size in damage.sizes],
            "picture_box": list(self.box),
            "flagged": self.flagged,
            "dropped": sorted({number for name in self.settings.drop for number in self.flagged[name]}),
            "damaged": damage.damaged,
            "times_back": damage.times_back,
            "cut_short": damage.cut_short,
        }

    def _until(self, second: float, shown: ShownFrame) -> Iterator[Frame]:
        """The frames to be taken while ``shown`` is, up to a time of the video."""
        if second - shown.second > LONGEST_GAP:
            text = f"{self.path}: nothing new is shown from {shown.second:.1f} to {second:.1f} s, more than an hour"
            raise DataError(f"{text}; its times are wrong: write it anew with times, or cut it there")
        frame, marks = None, []
        while self._due(second, frame is None):
            if frame is None:
                frame = self._scaled(shown)
                marks = matching_rules(frame)
                if set(marks) & set(self.settings.drop):
                    frame = np.zeros_like(frame)
            else:
                self.repeated += 1
            for name in marks:
                self.flagged[name].append(self.count)
            if self.grid is None:
                self.times.append(round(shown.second - self.start, 6))
            self.count += 1
            yield frame

    def _due(self, second: float, first: bool) -> bool:
        """True where the frame shown until ``second`` is to be taken, for the first time or again."""
        grid = self.grid
        return first if grid is None else self.start + self.count / grid.rate < second - grid.slack

    def _scaled(self, shown: ShownFrame) -> Frame:
        """The picture without its borders, at the wanted size."""
        height, width = self.settings.size
        top, bottom, left, right = self.box
        whole = round(height / (bottom - top)), round(width / (right - left))
        frame = shown.scaled(*whole)
        y, x = min(round(top * whole[0]), whole[0] - height), min(round(left * whole[1]), whole[1] - width)
        return frame[y : y + height, x : x + width]


@dataclass(frozen=True)
class SpaceNeeded:
    """Space that prepared videos take on disk."""

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
        if settings.rate is None:
            frames += max(1, video.count())
        else:
            frames += frame_grid(video.steady_rate(), settings.rate).frames(video.seconds())
    return SpaceNeeded(frames, *settings.size, settings.rate)


def foretold(folder: Path, settings: FrameSettings) -> StoredVideo:
    """Foretell the times of a folder of frames once prepared, from its own table of times; no picture is opened.

    Returns:
        What labels by time are held against; ``frames`` of it cannot be read.

    Raises:
        DataError: the folder has no frames, or does not say when they are shown.
    """
    source = FrameFolder(folder, settings.names_rate)
    first, seconds = source.listed[0][1], source.seconds()
    grid = None if source.single or settings.rate is None else frame_grid(source.steady_rate(), settings.rate)
    times = None if grid else [second - first for _, second in source.listed]
    count = grid.frames(seconds) if grid else len(source.listed)
    facts = {"frames": count, "rate": grid and grid.rate, "seconds": seconds, "first_second": first, "times": times}
    return StoredVideo(folder, Path(), facts)
