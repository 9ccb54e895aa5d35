"""A video file is opened, and what its header says."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedmed.data.video.source import THREADS, need_av
from fedmed.errors import DataError, first_line

FRAME_PIXELS = 2**26  # of one frame, twice those of 8K; a decoder holds a dozen frames
LONGEST = 48 * 3600.0  # seconds of a video
PREVIEW = 16  # a stream of so many times fewer pixels than another is its preview
# Formats of FFmpeg that are not recordings: text as a picture, lists of other files or addresses, single pictures.
NOT_VIDEOS = {"tty", "hls", "concat", "dash", "sdp", "rtsp", "image2", "lavfi"}
_LARGEST = {"max_pixels": str(FRAME_PIXELS)}  # the size may change midway


@contextmanager
def opened_video(path: Path) -> Iterator[tuple[Any, Any]]:
    """The ``av`` container of a file and the stream of its recording, ready to be decoded.

    Raises:
        DataError: the file cannot be opened, is something else than a video, or states frames of more than
            ``FRAME_PIXELS`` or more than ``LONGEST`` seconds.
    """
    av = need_av()
    try:
        container = av.open(str(path.absolute()), options={"protocol_whitelist": "file", **_LARGEST})
    except (av.FFmpegError, OSError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be opened as a video ({first_line(error)}): it is damaged, was cut short (an MP4 has its "
            "index at the end), or is something else; play it, and copy it again"
        ) from error
    with container:
        names = set(container.format.name.split(","))
        if names & NOT_VIDEOS or any(name.endswith("_pipe") for name in names):
            raise DataError(f"{path}: is {container.format.long_name}, not a video; remove the entry")
        stream = _video_stream(path, container)
        _require_sane(path, container, stream)
        yield container, stream


def start_of(stream: Any) -> float:
    """When the video begins, in seconds of the file's own time."""
    return float((stream.start_time or 0) * stream.time_base)


def stated_end(container: Any, stream: Any) -> float | None:
    """Where the file says that its video ends, in its own time; None where it says nothing about the video."""
    if "mpegts" in container.format.name:
        return None  # what FFmpeg gives is the time of the last packet
    if stream.duration:
        return start_of(stream) + float(stream.duration * stream.time_base)
    try:
        hours, minutes, seconds = stream.metadata.get("DURATION", "").split(":")  # Matroska: 00:00:02.000000000
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    except ValueError:
        only = len(container.streams) == 1 and container.duration
        return container.duration / need_av().time_base if only else None


def _require_sane(path: Path, container: Any, stream: Any) -> None:
    """A header of some bytes can state any size and length, which would be decoded or waited for."""
    width, height = stream.codec_context.width, stream.codec_context.height
    if width * height > FRAME_PIXELS:
        raise DataError(
            f"{path}: states frames of {width}×{height} pixels, more than {FRAME_PIXELS} in all; it is damaged, or "
            "scale it: ffmpeg -i IN -vf scale=1920:-2 out.mp4"
        )
    seconds = (stated_end(container, stream) or 0.0) - start_of(stream)
    if seconds > LONGEST:
        raise DataError(f"{path}: {too_long(seconds)}")


def too_long(seconds: float) -> str:
    """What is said of a video that is, or states to be, longer than ``LONGEST``."""
    return f"lasts {seconds / 3600:.0f} hours, more than {LONGEST / 3600:.0f}; its times are wrong, or cut it in parts"


def _video_stream(path: Path, container: Any) -> Any:
    stream = _recording(container.streams.video)
    if stream is None:
        held = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise DataError(
            f"{path}: has no video stream, only {held}; remove the entry, or copy it again if it is cut short"
        )
    if stream.codec_context is None:
        raise DataError(f"{path}: this FFmpeg cannot decode its video; convert it: ffmpeg -i IN out.mp4")
    # Without "explode" the decoder paints over what it cannot read, and says nothing.
    stream.codec_context.options = {"err_detect": "explode", **_LARGEST}
    stream.thread_type, stream.codec_context.thread_count = "AUTO", THREADS
    return stream


def _recording(streams: Iterable[Any]) -> Any:
    """The stream that is the recording itself, no picture and no preview; None where there is none.

    Of several the default, then the largest, then the first, which of two eyes or cameras is as players show it.
    """
    kinds = need_av().stream.Disposition
    pictures = kinds.attached_pic | kinds.timed_thumbnails | kinds.still_image
    sizes = {one: _pixels(one) for one in streams if not one.disposition & pictures}
    largest = max((size for size in sizes.values() if size < math.inf), default=0)
    films = [one for one, size in sizes.items() if size * PREVIEW >= largest]
    return max(films, key=lambda one: (bool(one.disposition & kinds.default), sizes[one]), default=None)


def _pixels(stream: Any) -> float:
    """Of a frame. One that cannot be decoded states none; it may be the recording, and is refused then."""
    return stream.codec_context.width * stream.codec_context.height if stream.codec_context else math.inf
