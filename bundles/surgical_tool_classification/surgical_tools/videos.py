"""Frames of a video at a rate, as training takes them. It needs PyAV, which nothing else of the bundle does."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from .errors import BundleInputError

LARGEST = {"max_pixels": str(2**26)}  # of a frame, twice those of 8K: a header of some bytes can state any size
SAME = 1e-6  # seconds: times that are nearer are one time
NEARLY = 0.005  # of a rate: 29.97 for 30 is 0.1 %
SHORTFALL, FRAMES_SHORT = 0.5, 2  # seconds, mean frames, by which a video may end before the end that its file states


def frames_at(path: str | Path, rate: float) -> Iterator[tuple[float, Image.Image]]:
    """Yield second and picture of frame 0, 1, …: the last that is not later than k / rate seconds after the first.

    Of videos of 29.97 frames a second and the like each n-th is taken, as in training.

    A packet that cannot be decoded is left out; the frame before it is shown for longer.

    Raises:
        BundleInputError: a rate that is not above 0, PyAV is missing, or no frame can be decoded; after the last frame,
            where packets are damaged or the file ends before the end that it states.
    """
    if not (isinstance(rate, int | float) and 0 < rate < math.inf):
        raise BundleInputError(
            f"frame_rate (mask_rate, where masks are made) is {rate!r}; give frames a second above 0, such as 1"
        )
    rate, slack = _grid(Path(path), rate)
    start, count, shown, damage = 0.0, 0, None, list[str]()
    for frame in _decoded(Path(path), damage):
        if shown is None:
            start = frame.time
        elif frame.time < shown.time:
            continue
        while shown is not None and start + count / rate < frame.time - slack:
            yield count / rate, _upright(shown)
            count += 1
        shown = frame
    if shown is None:
        raise BundleInputError(f"{path} is damaged: none of its frames can be decoded; copy the video again")
    end = shown.time + float((shown.duration or 0) * (shown.time_base or 0))
    while count == 0 or start + count / rate < end - slack:
        yield count / rate, _upright(shown)
        count += 1
    if damage:  # what could be read is used, and nobody takes it for the whole video
        raise BundleInputError(f"{path} is damaged: {'; '.join(damage)}; the other frames are used; copy it again")


def _grid(path: Path, rate: float) -> tuple[float, float]:
    """Frames a second that are taken, and by how many seconds one may begin too late: each n-th, where that is meant.

    At 10 a second the times would drift along the frames of a video of 29.97, of which every third is taken.
    """
    with _opened(path) as (_, stream, _):
        base = float(stream.base_rate or 0)
        mean = float(stream.average_rate or base)
    own = next((base / fields for fields in (1, 2) if base and abs(fields * mean / base - 1) <= NEARLY), 0.0)
    steps = round(round(own) / rate)
    whole = not steps or abs(own / round(own) - 1) < SAME
    if whole or not SAME < abs(own / rate / steps - 1) <= NEARLY:
        return rate, SAME
    return own / steps, 0.5 / own


def _decoded(path: Path, damage: list[str]) -> Iterator[Any]:
    """All frames of PyAV that can be decoded and have a time; says in ``damage`` what is wrong with the file."""
    with _opened(path) as (container, stream, failure):
        yield from _packets(container, stream, failure, damage)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any, type[Exception]]]:
    """PyAV's container of a video, its first stream of pictures, and what PyAV raises."""
    try:
        import av
    except ImportError as error:
        raise BundleInputError(
            f"{path} is a video, which needs PyAV: pip install av; or write frames: ffmpeg -i {path.name} -vf fps=1 "
            "frames/%05d.png"
        ) from error
    try:  # "file": the video may not lead FFmpeg to other machines
        with av.open(str(path.absolute()), options={"protocol_whitelist": "file", **LARGEST}) as container:
            if not container.streams.video:
                raise BundleInputError(f"{path} holds no picture; give a video")
            yield container, container.streams.video[0], av.FFmpegError
    except (av.FFmpegError, OSError) as error:
        raise BundleInputError(f"{path} is damaged or no video ({error}); copy it again") from error


def _packets(container: Any, stream: Any, failure: type[Exception], damage: list[str]) -> Iterator[Any]:
    # Without "explode" the decoder paints over what it cannot read, and says nothing.
    stream.codec_context.options = {"err_detect": "explode", **LARGEST}
    bad, packets, end, tick = list[float](), 0, 0.0, float(stream.time_base)
    begin = (stream.start_time or 0) * tick
    try:
        for packet in container.demux(stream):
            if packet.pts is not None:
                packets, end = packets + 1, max(end, (packet.pts + (packet.duration or 0)) * tick)
            try:
                frames = packet.decode()
            except failure:
                frames = []
                bad.append((packet.pts or 0) * tick - begin)
            yield from (frame for frame in frames if frame.time is not None)
    except (failure, OSError) as error:  # the reading itself: nothing comes after it
        damage.append(f"reading stops after {packets} packets ({error})")
    if bad:
        damage.append(f"packets that cannot be decoded: {len(bad)}, the first at about {bad[0]:.1f} s")
    stated = _stated_end(container, stream)
    if stated is not None and end < stated - max(SHORTFALL, FRAMES_SHORT * (end - begin) / max(1, packets)):
        damage.append(f"it ends at {end - begin:.1f} s of the {stated - begin:.1f} s that it states")


def _stated_end(container: Any, stream: Any) -> float | None:
    """Where the file says that its video ends, in its own time; None where it says nothing about the video."""
    if "mpegts" in container.format.name:
        return None  # what FFmpeg gives is the time of the last packet
    if stream.duration:
        return float(((stream.start_time or 0) + stream.duration) * stream.time_base)
    return container.duration / 1e6 if len(container.streams) == 1 and container.duration else None


def _upright(frame: Any) -> Image.Image:
    picture: Image.Image = frame.to_image()
    return picture.rotate(frame.rotation, expand=True) if frame.rotation else picture
