"""A video as it comes: frames one after the other with the times at which they are shown."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedmed.data.video.frame_settings import Frame
from fedmed.errors import DataError
from fedmed.optional import needs

THREADS = 2  # of a decoder: more keep more frames in memory


class Orientation(NamedTuple):
    """Changes of a stored picture to turn it upright, in this order."""

    swapped: bool = False  # rows become columns
    left_right: bool = False  # mirrored
    up_down: bool = False


def orientation(frame: Any) -> Orientation:
    """The nearest of the eight that the display matrix of an ``av.VideoFrame`` says.

    The matrix takes stored x and y to x' = a x + c y and y' = b x + d y (ISO/IEC 14496-12, 8.3.2; FFmpeg's display.h).
    The angle that PyAV makes of it (``rotation``) does not know mirrors: it turns a mirrored picture upside down.
    """
    matrix = frame.side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return Orientation()
    a, b, _, c, d = np.frombuffer(matrix, np.int32)[:5].tolist()
    return Orientation(True, c < 0, b < 0) if abs(b) > abs(a) else Orientation(False, a < 0, d < 0)


@dataclass
class Damage:
    """Faults of a video, which is either refused for them, or they are counted."""

    path: Path
    refuse: bool = True
    damaged: int = 0  # packets or frames that cannot be decoded, or are marked as damaged
    times_back: int = 0  # frames that would be shown before the one before them
    cut_short: bool = False  # it ends before the end that it states
    sizes: list[tuple[int, int]] = field(default_factory=list)  # height and width, in the order of first use

    def add(self, name: str, what: str) -> None:
        """Count a fault under ``name``; DataError where the video is to be refused."""
        if self.refuse:
            remedy = "copy or record it again, or leave out what is damaged with damage='count'"
            raise DataError(f"{self.path}: {what}; {remedy}")
        setattr(self, name, getattr(self, name) + 1)


@dataclass(frozen=True)
class ShownFrame:
    """One frame of a video."""

    second: float  # when it is shown, in the video's own time
    until: float  # when it ends, as far as the file says; else ``second``
    picture: Any  # an ``av.VideoFrame``
    scaler: "Scaler"  # of the video

    def scaled(self, height: int, width: int) -> Frame:
        """The frame, upright, as uint8 RGB (height, width, 3)."""
        return self.scaler(self.picture, height, width)


class VideoSource(Protocol):
    """A file or a folder of frames."""

    single: bool  # whether its pictures have nothing to do with each other

    def frames(self, damage: Damage) -> Iterator[ShownFrame]:
        """All frames in the order of their times, each valid until the next; DataError for what cannot be read."""

    def sample(self, count: int, height: int, width: int, exact: bool = False) -> list[Frame]:
        """About ``count`` frames spread over the video; fewer where that is all there is.

        Only with ``exact`` they are those of just these times. A file is decoded from the key frame before each then;
        otherwise key frames are taken, which may be few and far between.
        """

    def seconds(self) -> float:
        """Length in seconds, as far as its header tells; DataError where that is not known."""

    def count(self) -> int:
        """Number of frames, as far as its header tells; DataError where that is not known."""

    def steady_rate(self) -> float | None:
        """Frames a second, as far as its header tells; None where they do not come evenly, or that is not known."""


class Scaler:
    """Scales frames of PyAV and turns them upright; one for a video, since it is prepared for sizes and formats."""

    def __init__(self) -> None:
        with needs("video", "videos", DataError):
            from av.video.reformatter import Interpolation, VideoReformatter

        self._reformatter = VideoReformatter()
        # Without the full chroma scaling makes frames two grey levels darker; the others: alike on every processor.
        exact = Interpolation.FULL_CHR_H_INT | Interpolation.ACCURATE_RND | Interpolation.BITEXACT
        self._how = Interpolation.BILINEAR | exact

    def __call__(self, frame: Any, height: int, width: int) -> Frame:
        """(height, width, 3) uint8 RGB of an ``av.VideoFrame``."""
        swapped, left_right, up_down = orientation(frame)
        sides = (height, width) if swapped else (width, height)
        # One thread: PyAV otherwise starts one a core for each frame, which is slower at these sizes.
        small = self._reformatter.reformat(frame, *sides, format="rgb24", interpolation=self._how, threads=1)
        pixels = small.to_ndarray().astype(np.uint8, copy=False)
        pixels = pixels.swapaxes(0, 1) if swapped else pixels
        return pixels[:: -1 if up_down else 1, :: -1 if left_right else 1]


def need_av() -> Any:
    """The module of PyAV, which only videos need; DataError where it is not installed."""
    with needs("video", "videos", DataError):
        import av
    return av
