"""A video file, streamed with PyAV: true times, and damage told from the end; and films that are written."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedmed.data.read_limits import file_bytes
from fedmed.data.video.folder_source import FrameFolder
from fedmed.data.video.frame_settings import NEARLY, Frame
from fedmed.data.video.source import THREADS, Damage, Scaler, ShownFrame, VideoSource, need_av
from fedmed.errors import DataError, first_line

FRAME_PIXELS = 2**26  # of one frame, twice those of 8K; a decoder holds a dozen frames
LONGEST = 48 * 3600.0  # seconds of a video
PREVIEW = 16  # a stream of so many times fewer pixels than another is its preview
# Formats of FFmpeg that are not recordings: text as a picture, lists of other files or addresses, single pictures.
NOT_VIDEOS = {"tty", "hls", "concat", "dash", "sdp", "rtsp", "image2", "lavfi"}
_LARGEST = {"max_pixels": str(FRAME_PIXELS)}  # the size may change midway
SHORTFALL, FRAMES_SHORT = 0.5, 2  # seconds or mean frames by which the last packet may end before what the file states
NEAR = 10.0  # seconds that are sooner decoded than skipped
TICKS = 12800  # a second, of frames at times of their own


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
        causes = "it is damaged, was cut short (an MP4 has its index at the end), or is something else"
        text = f"{path}: cannot be opened as a video ({first_line(error)}): {causes}; play it, and copy it again"
        raise DataError(text) from error
    with container:
        names = set(container.format.name.split(","))
        if names & NOT_VIDEOS or any(name.endswith("_pipe") for name in names):
            raise DataError(f"{path}: is {container.format.long_name}, not a video; remove the entry")
        stream = _video_stream(path, container)
        # A header of some bytes can state any size and length, which would be decoded or waited for.
        width, height = stream.codec_context.width, stream.codec_context.height
        if width * height > FRAME_PIXELS:
            text = f"{path}: states frames of {width}×{height} pixels, more than {FRAME_PIXELS} in all"
            raise DataError(f"{text}; it is damaged, or scale it: ffmpeg -i IN -vf scale=1920:-2 out.mp4")
        seconds = (stated_end(container, stream) or 0.0) - start_of(stream)
        if seconds > LONGEST:
            raise DataError(f"{path}: {too_long(seconds)}")
        yield container, stream


def start_of(stream: Any) -> float:
    """Start of the video, in seconds of the file's own time."""
    return float((stream.start_time or 0) * stream.time_base)


def stated_end(container: Any, stream: Any) -> float | None:
    """End of the video as the file states it, in its own time; None where it says nothing about the video."""
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


def too_long(seconds: float) -> str:
    """Sentence about a video that is, or states to be, longer than ``LONGEST``."""
    return f"lasts {seconds / 3600:.0f} hours, more than {LONGEST / 3600:.0f}; its times are wrong, or cut it in parts"


def _video_stream(path: Path, container: Any) -> Any:
    stream = _recording(container.streams.video)
    if stream is None:
        held = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise DataError(f"{path}: has no video stream, only {held}; remove it, or copy it again if it is cut short")
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


class VideoFile:
    """A file in any format and codec that FFmpeg reads, in memory that does not depend on its length.

    Times are those at which frames are shown, in seconds, as the file has them, at a variable frame rate too. The file
    cannot lead FFmpeg to other files or into the network.
    """

    single = False

    def __init__(self, path: Path) -> None:
        self.path, self.av = path, need_av()
        try:
            size = file_bytes(path)
        except OSError as error:
            raise DataError(f"{path}: the video cannot be read ({error.strerror}); restore it") from error
        if size == 0:
            raise DataError(f"{path}: the file is empty; copy it again")
        with opened_video(self.path):
            pass

    def frames(self, damage: Damage) -> Iterator[ShownFrame]:
        """See :class:`fedmed.data.video.source.VideoSource`.

        Of a file with damage, ``damage`` counts packets that do not decode or are marked as damaged, frames whose time
        goes back, and whether the packets end half a second and two frames before the end that the file states. A
        transport stream (``.ts``) states none.
        """
        with opened_video(self.path) as (container, stream):
            scaler, last, end, packets = Scaler(), -float("inf"), 0.0, 0
            tick = float(stream.time_base)  # fractions would cost as much as the rest of this loop
            for packet in self._packets(container, stream, damage):
                if packet.pts is not None:
                    packets += 1
                    end = max(end, (packet.pts + (packet.duration or 0)) * tick)
                for frame in self._decoded(packet, damage):
                    if frame.time is None:
                        remedy = f"ffmpeg -r RATE -i {self.path.name} -c copy out.mp4"
                        raise DataError(
                            f"{self.path}: its frames have no times (frame rate absent); give some: {remedy}"
                        )
                    if frame.time < last:
                        damage.add("times_back", f"the time goes back from {last:.3f} to {frame.time:.3f} s")
                        continue
                    last, size = frame.time, (frame.height, frame.width)
                    if size not in damage.sizes:
                        damage.sizes.append(size)
                    until = last + (frame.duration or 0) * tick
                    yield ShownFrame(last, until, frame, scaler)
            stated = stated_end(container, stream)
            allowed = max(SHORTFALL, FRAMES_SHORT * (end - start_of(stream)) / max(1, packets))
            if stated is not None and end < stated - allowed and not damage.cut_short:
                damage.add("cut_short", f"it ends at {end:.2f} s of {stated:.2f} s that it states: it was cut short")
                damage.cut_short = True

    def sample(self, count: int, height: int, width: int, exact: bool = False) -> list[Frame]:
        """The first frame that can be decoded after the key frame before each of ``count`` times, or after the time."""
        samples: list[Frame] = []
        with opened_video(self.path) as (container, stream):
            scaler, seconds = Scaler(), (container.duration or 0) / self.av.time_base
            frames, now, second = None, -math.inf, self.av.time_base
            for number in range(count):
                when = (container.start_time or 0) + int(second * seconds * (number + 0.5) / count)
                try:
                    if frames is None or not exact or when > now + NEAR * second:
                        if seconds:
                            container.seek(when)
                        frames = container.decode(stream)
                    frame = next(frames)
                    while exact and frame.time is not None and frame.time * second < when:
                        frame = next(frames)
                    now = when
                    samples.append(scaler(frame, height, width))
                except (self.av.FFmpegError, StopIteration):
                    frames = None  # damage is told when all frames are read
        return samples

    def seconds(self) -> float:
        with opened_video(self.path) as (container, stream):
            end = stated_end(container, stream)
            if end is None and container.duration:
                end = container.duration / self.av.time_base
            if end is None:
                raise DataError(f"{self.path}: does not state how long it is; its size is known once it is prepared")
            return max(0.0, end - start_of(stream))

    def count(self) -> int:
        with opened_video(self.path) as (_, stream):
            if not stream.frames:
                raise DataError(f"{self.path}: does not state how many frames it has; prepare it at a rate")
            return int(stream.frames)

    def steady_rate(self) -> float | None:
        with opened_video(self.path) as (_, stream):
            base = float(stream.base_rate or 0)  # FFmpeg's guess from the first frames, whole or n · 1000 / 1001
            mean = float(stream.average_rate or base)
            fields = (1, 2)  # of a frame: the two of an interlaced one may count as frames
            return next((base / n for n in fields if base and abs(n * mean / base - 1) <= NEARLY), None)

    def _packets(self, container: Any, stream: Any, damage: Damage) -> Iterator[Any]:
        packets, number = container.demux(stream), 0
        while True:
            try:
                packet = next(packets, None)
            except (self.av.FFmpegError, OSError) as error:  # the reading itself: nothing comes after it
                damage.add("cut_short", f"reading stops after {number} packets ({first_line(error)})")
                damage.cut_short = True
                return
            if packet is None:
                return
            number += 1
            yield packet

    def _decoded(self, packet: Any, damage: Damage) -> list[Any]:
        try:
            frames = packet.decode()
        except (self.av.FFmpegError, OSError) as error:
            damage.add("damaged", f"the packet {_when(packet)} is damaged ({first_line(error)})")
            return []
        if packet.is_corrupt or any(frame.is_corrupt for frame in frames):
            damage.add("damaged", f"the packet {_when(packet)} is marked as damaged")
        return [frame for frame in frames if not frame.is_corrupt]


def _when(packet: Any) -> str:
    return "at an unknown time" if packet.pts is None else f"at about {float(packet.pts * packet.time_base):.3f} s"


def write_movie(
    path: Path | BinaryIO, frames: Iterable[Frame], rate: float, times: NDArray[np.float64] | None = None
) -> None:
    """Write ``frames`` as H.264 with frame n at n / ``rate`` seconds, or at ``times[n]``.

    Args:
        path: the file to write, or one that is open.
        frames: (H, W, 3) uint8 of red, green, blue, all of one size; H and W are even.
        rate: frames a second, with ``times`` their mean.
        times: seconds, increasing from 0, one a frame.

    Raises:
        DataError: PyAV is not installed.
    """
    av, exact, tick = need_av(), Fraction(rate).limit_denominator(1001), Fraction(1, TICKS)
    with av.open(str(path) if isinstance(path, Path) else path, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=exact, options={"crf": "21", "preset": "superfast"})
        stream.pix_fmt, stream.codec_context.thread_count = "yuv420p", 1
        if times is not None:
            stream.codec_context.time_base = tick
        for number, image in enumerate(frames):
            if not number:
                stream.height, stream.width = image.shape[:2]
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = (number, 1 / exact) if times is None else (round(times[number] * TICKS), tick)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def open_video(path: Path | str, names_rate: float | None = None) -> VideoSource:
    """A video file or a folder of frames, to be read; for ``names_rate`` see :class:`FrameSettings`.

    Raises:
        DataError: nothing there, an empty file, no video, no times, or PyAV is missing.
    """
    path = Path(path)
    return FrameFolder(path, names_rate) if path.is_dir() else VideoFile(path)
