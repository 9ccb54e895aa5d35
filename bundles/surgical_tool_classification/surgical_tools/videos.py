"""Frames of a video at a rate, as training takes them. It needs PyAV, which nothing else of the bundle does."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from .errors import BundleInputError

SAME = 1e-6  # seconds: times that are nearer are one time


def frames_at(path: str | Path, rate: float) -> Iterator[tuple[float, Image.Image]]:
    """Yield second and picture of frame 0, 1, …: the last that is not later than k / rate seconds after the first.

    A packet that cannot be decoded is left out; the frame before it is shown for longer.

    Raises:
        BundleInputError: a rate that is not above 0, PyAV is missing, or no frame can be decoded.
    """
    if not (isinstance(rate, int | float) and 0 < rate < math.inf):
        raise BundleInputError(f"frame_rate is {rate!r}; give frames a second above 0, such as 1")
    start, count, shown = 0.0, 0, None
    for frame in _decoded(Path(path)):
        if shown is None:
            start = frame.time
        elif frame.time < shown.time:
            continue
        while shown is not None and start + count / rate < frame.time - SAME:
            yield count / rate, _upright(shown)
            count += 1
        shown = frame
    if shown is None:
        raise BundleInputError(f"{path}: none of its frames can be decoded; copy the video again")
    end = shown.time + float((shown.duration or 0) * (shown.time_base or 0))
    while count == 0 or start + count / rate < end - SAME:
        yield count / rate, _upright(shown)
        count += 1


def _decoded(path: Path) -> Iterator[Any]:
    """All frames of PyAV that can be decoded and have a time."""
    try:
        import av
    except ImportError as error:
        raise BundleInputError(
            f"{path} is a video, which needs PyAV: pip install av; or write frames: ffmpeg -i {path.name} -vf fps=1 "
            "frames/%05d.png"
        ) from error
    try:  # "file": the video may not lead FFmpeg to other machines
        with av.open(str(path.absolute()), options={"protocol_whitelist": "file"}) as container:
            if not container.streams.video:
                raise BundleInputError(f"{path} holds no picture; give a video")
            for packet in container.demux(container.streams.video[0]):
                try:
                    yield from (frame for frame in packet.decode() if frame.time is not None)
                except av.InvalidDataError:
                    continue
    except (av.FFmpegError, OSError) as error:
        raise BundleInputError(f"{path} is damaged or no video ({error}); copy it again") from error


def _upright(frame: Any) -> Image.Image:
    picture: Image.Image = frame.to_image()
    return picture.rotate(frame.rotation, expand=True) if frame.rotation else picture
