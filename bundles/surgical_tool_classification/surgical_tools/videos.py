"""Frames of a video at a rate, as training takes them. It needs PyAV, which nothing else of the bundle does."""

import math
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from .errors import BundleInputError

LARGEST = {"max_pixels": str(2**26)}  # of a frame, twice those of 8K: a header of some bytes can state any size
SAME = 1e-6  # seconds: times that are nearer are one time
NEARLY = 0.005  # of a rate: 29.97 for 30 is 0.1 %
LONGEST_GAP = 3600.0  # seconds for which one frame may be shown
PREVIEW = 16  # a stream of so many times fewer pixels than another is its preview
SHORTFALL, FRAMES_SHORT = 0.5, 2  # seconds, mean frames, by which a video may end before the end that its file states


def frames_at(path: str | Path, rate: float) -> Iterator[tuple[float, Image.Image]]:
    """Yield second and picture of frame 0, 1, …: the last that is not later than k / rate seconds after the first.

    Of videos of 29.97 frames a second and the like each n-th is taken, as in training.

    A packet that cannot be decoded is left out; the frame before it is shown for longer.

    Raises:
        BundleInputError: a rate that is not above 0, PyAV is missing, no frame can be decoded, a frame has no time, or
            one is shown for more than an hour; after the last frame, where packets are damaged, times go back or the
            file ends before the end that it states.
    """
    if not (isinstance(rate, int | float) and 0 < rate < math.inf):
        raise BundleInputError(
            f"frame_rate (mask_rate, where masks are made) is {rate!r}; give frames a second above 0, such as 1"
        )
    rate, slack = _grid(Path(path), rate)
    start, count, shown, damage = 0.0, 0, None, list[str]()
    for frame in _in_order(Path(path), damage):
        start = frame.time if shown is None else start
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
    frame_rate = next((base / fields for fields in (1, 2) if base and abs(fields * mean / base - 1) <= NEARLY), 0.0)
    steps = round(round(frame_rate) / rate)
    whole = not steps or abs(frame_rate / round(frame_rate) - 1) < SAME
    if whole or not SAME < abs(frame_rate / rate / steps - 1) <= NEARLY:
        return rate, SAME
    return frame_rate / steps, 0.5 / frame_rate


def _in_order(path: Path, damage: list[str]) -> Iterator[Any]:
    """The frames whose times go on. Those of files that were joined byte by byte begin again with each."""
    last, start, back = None, 0.0, list[str]()
    for frame in _decoded(path, damage):
        if frame.time is None:
            raise BundleInputError(
                f"{path}: its frames have no times (frame rate absent), or its first have none; give it some: ffmpeg "
                f"-r RATE -i {path.name} -c copy out.mp4"
            )
        start, last = (frame.time, frame.time) if last is None else (start, last)
        step = f"from {last - start:.1f} to {frame.time - start:.1f} s"
        if frame.time - last > LONGEST_GAP:
            raise BundleInputError(
                f"{path}: nothing new is shown {step}, more than an hour; its times are wrong: write it anew with "
                "times, or cut it there"
            )
        if frame.time < last:
            back.append(step)
        else:
            last = frame.time
            yield frame
    if back:
        hint = f"if files were joined, write them anew: ffmpeg -i {path.name} -c copy out.mkv"
        damage.append(f"its time goes back {back[0]}, so {len(back)} frames are left out; {hint}")


def _decoded(path: Path, damage: list[str]) -> Iterator[Any]:
    """All frames of PyAV that can be decoded; says in ``damage`` what is wrong with the file."""
    with _opened(path) as (container, stream, failure):
        yield from _packets(container, stream, failure, damage)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any, type[Exception]]]:
    """PyAV's container of a video, the stream of its recording, and what PyAV raises."""
    try:
        import av
    except ImportError as error:
        raise BundleInputError(
            f"{path} is a video, which needs PyAV: pip install 'fedmed[video]', or av alone; or write frames: "
            f"ffmpeg -i {path.name} -vf fps=1 frames/%05d.png"
        ) from error
    try:  # "file": the video may not lead FFmpeg to other machines
        with av.open(str(path.absolute()), options={"protocol_whitelist": "file", **LARGEST}) as container:
            stream = _recording(container.streams.video, av.stream.Disposition)
            if stream is None:
                raise BundleInputError(f"{path} holds no moving picture; give a video")
            if stream.codec_context is None:
                raise BundleInputError(f"{path}: this FFmpeg cannot decode it; convert it: ffmpeg -i IN out.mp4")
            yield container, stream, av.FFmpegError
    except (av.FFmpegError, OSError) as error:
        raise BundleInputError(f"{path} is damaged or no video ({error}); copy it again") from error


def _recording(streams: Iterable[Any], kinds: Any) -> Any:
    """As in training no picture and no preview; of several the default, then the largest, then the first."""
    pictures = kinds.attached_pic | kinds.timed_thumbnails | kinds.still_image
    sizes = {one: _pixels(one) for one in streams if not one.disposition & pictures}
    largest = max((size for size in sizes.values() if size < math.inf), default=0)
    films = [one for one, size in sizes.items() if size * PREVIEW >= largest]
    return max(films, key=lambda one: (bool(one.disposition & kinds.default), sizes[one]), default=None)


def _pixels(stream: Any) -> float:
    """Of a frame. One that cannot be decoded states none; it may be the recording, and is refused then."""
    return stream.codec_context.width * stream.codec_context.height if stream.codec_context else math.inf


def _packets(container: Any, stream: Any, failure: type[Exception], damage: list[str]) -> Iterator[Any]:
    # Without "explode" the decoder paints over what it cannot read, and says nothing.
    stream.codec_context.options = {"err_detect": "explode", **LARGEST}
    bad, packets, end, tick = list[float](), 0, 0.0, float(stream.time_base)
    begin = (stream.start_time or 0) * tick
    try:
        for packet in container.demux(stream):
            if packet.pts is not None:
                packets, end = packets + 1, max(end, (packet.pts + (packet.duration or 0)) * tick)
            whole = not packet.is_corrupt
            try:
                frames = packet.decode()
            except failure:
                frames, whole = [], False
            if not whole or any(frame.is_corrupt for frame in frames):
                bad.append((packet.pts or 0) * tick - begin)
            yield from (frame for frame in frames if not frame.is_corrupt)
    except (failure, OSError) as error:  # the reading itself: nothing comes after it
        damage.append(f"reading stops after {packets} packets ({error})")
    if bad:
        damage.append(f"packets that cannot be decoded: {len(bad)}, the first at about {bad[0]:.1f} s")
    stated = _stated_end(container, stream)
    if stated is not None and end < stated - max(SHORTFALL, FRAMES_SHORT * (end - begin) / max(1, packets)):
        damage.append(f"it ends at {end - begin:.1f} s of the {stated - begin:.1f} s that it states")


def _stated_end(container: Any, stream: Any) -> float | None:
    """End of the video as the file says it, in its own time; None where it says nothing about the video."""
    if "mpegts" in container.format.name:
        return None  # what FFmpeg gives is the time of the last packet
    if stream.duration:
        return float(((stream.start_time or 0) + stream.duration) * stream.time_base)
    return container.duration / 1e6 if len(container.streams) == 1 and container.duration else None


def _upright(frame: Any) -> Image.Image:
    """The picture, turned and mirrored by the file's display matrix: x' = a x + c y, y' = b x + d y (ISO 14496-12)."""
    picture: Image.Image = frame.to_image()
    matrix = frame.side_data.get("DISPLAYMATRIX")
    a, b, _, c, d = struct.unpack_from("=5i", matrix) if matrix else (1, 0, 0, 0, 1)
    swapped = abs(b) > abs(a)
    for wanted, how in (
        (swapped, Image.Transpose.TRANSPOSE),
        ((c if swapped else a) < 0, Image.Transpose.FLIP_LEFT_RIGHT),
        ((b if swapped else d) < 0, Image.Transpose.FLIP_TOP_BOTTOM),
    ):
        picture = picture.transpose(how) if wanted else picture
    return picture
