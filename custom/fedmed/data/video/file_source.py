"""A video file, streamed with PyAV: true times, and damage told from the end."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedmed.data.video.frame_rules import Frame
from fedmed.data.video.source import THREADS, Damage, Scaler, ShownFrame, need_av
from fedmed.errors import DataError, first_line

SHORTFALL = 0.5  # seconds by which the last packet may end before what the file states
# Formats of FFmpeg that are no recordings: text as a picture, lists of other files or addresses, single pictures.
NOT_VIDEOS = {"tty", "hls", "concat", "dash", "sdp", "rtsp", "image2", "lavfi"}


class VideoFile:
    """A file in any format and codec that FFmpeg reads. Its memory does not depend on its length.

    Times are those at which frames are shown, in seconds, as the file has them: a variable frame rate needs nothing
    more. The file cannot lead FFmpeg to other files or into the network.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.av = need_av()
        try:
            empty = path.stat().st_size == 0
        except OSError as error:
            raise DataError(f"{path}: the video cannot be read ({error.strerror}); restore it") from error
        if empty:
            raise DataError(f"{path}: the file is empty; copy it again")
        with self._open():
            pass

    def frames(self, damage: Damage) -> Iterator[ShownFrame]:
        """See :class:`fedmed.data.video.source.VideoSource`.

        Of a file with damage, ``damage`` counts packets that do not decode or are marked as damaged, frames whose time
        goes back, and whether the packets end half a second or more before the end that the file states. A transport
        stream (``.ts``) states none.
        """
        with self._open() as (container, stream):
            scaler, last, end = Scaler(), -float("inf"), 0.0
            for packet in self._packets(container, stream, damage):
                if packet.pts is not None:
                    end = max(end, float((packet.pts + (packet.duration or 0)) * packet.time_base))
                for frame in self._decoded(packet, damage):
                    if frame.time is None:
                        raise DataError(
                            f"{self.path}: its frames have no times (frame rate absent); give it some: ffmpeg -r RATE "
                            f"-i {self.path.name} -c copy out.mp4"
                        )
                    if frame.time < last:
                        damage.add("times_back", f"the time goes back from {last:.3f} to {frame.time:.3f} s")
                        continue
                    last, size = frame.time, (frame.height, frame.width)
                    if size not in damage.sizes:
                        damage.sizes.append(size)
                    until = last + float((frame.duration or 0) * frame.time_base)
                    yield ShownFrame(last, until, frame, scaler)
            stated = self._stated_end(container, stream)
            if stated is not None and end < stated - SHORTFALL and not damage.cut_short:
                damage.add(
                    "cut_short", f"it ends at {end:.2f} s of the {stated:.2f} s that it states: it was cut short"
                )
                damage.cut_short = True

    def sample(self, count: int, height: int, width: int) -> list[Frame]:
        """The first frame that can be decoded after each of ``count`` times, spread evenly."""
        found: list[Frame] = []
        with self._open() as (container, stream):
            scaler, seconds = Scaler(), (container.duration or 0) / self.av.time_base
            for number in range(count):
                try:
                    if seconds:
                        start = container.start_time or 0
                        container.seek(start + int(self.av.time_base * seconds * (number + 0.5) / count))
                    found.append(scaler(next(container.decode(stream)), height, width))
                except (self.av.FFmpegError, StopIteration):
                    continue  # damage is told when all frames are read
        return found

    def seconds(self) -> float:
        with self._open() as (container, stream):
            end = self._stated_end(container, stream)
            if end is None and container.duration:
                end = container.duration / self.av.time_base
            if end is None:
                raise DataError(f"{self.path}: does not state how long it is; its size is known once it is prepared")
            return max(0.0, end - self._start(container, stream))

    @contextmanager
    def _open(self) -> Iterator[tuple[Any, Any]]:
        try:
            container = self.av.open(str(self.path.absolute()), options={"protocol_whitelist": "file"})
        except (self.av.FFmpegError, OSError, ValueError) as error:
            raise DataError(
                f"{self.path}: cannot be opened as a video ({first_line(error)}): it is damaged, was cut short (an MP4 "
                "has its index at the end), or is something else; play it, and copy it again"
            ) from error
        with container:
            names = set(container.format.name.split(","))
            if names & NOT_VIDEOS or any(name.endswith("_pipe") for name in names):
                raise DataError(f"{self.path}: is {container.format.long_name}, not a video; remove the entry")
            yield container, self._stream(container)

    def _stream(self, container: Any) -> Any:
        covers = self.av.stream.Disposition.attached_pic  # of a piece of music
        streams = [stream for stream in container.streams.video if not stream.disposition & covers]
        if not streams:
            held = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
            raise DataError(
                f"{self.path}: has no video stream, only {held}; remove the entry, or copy it again if it is cut short"
            )
        stream = streams[0]
        if stream.codec_context is None:
            raise DataError(f"{self.path}: this FFmpeg cannot decode its video; convert it: ffmpeg -i IN out.mp4")
        # Without "explode" the decoder paints over what it cannot read, and says nothing.
        stream.codec_context.options = {"err_detect": "explode"}
        stream.thread_type, stream.codec_context.thread_count = "AUTO", THREADS
        return stream

    def _packets(self, container: Any, stream: Any, damage: Damage) -> Iterator[Any]:
        packets, number = container.demux(stream), 0
        while True:
            try:
                packet = next(packets)
            except StopIteration:
                return
            except (self.av.FFmpegError, OSError) as error:  # the reading itself: nothing comes after it
                damage.add("cut_short", f"reading stops after {number} packets ({first_line(error)})")
                damage.cut_short = True
                return
            number += 1
            yield packet

    def _decoded(self, packet: Any, damage: Damage) -> list[Any]:
        where = "at an unknown time" if packet.pts is None else f"at about {float(packet.pts * packet.time_base):.3f} s"
        try:
            frames = packet.decode()
        except (self.av.FFmpegError, OSError) as error:
            damage.add("damaged", f"the packet {where} is damaged ({first_line(error)})")
            return []
        if packet.is_corrupt or any(frame.is_corrupt for frame in frames):
            damage.add("damaged", f"the packet {where} is marked as damaged")
        return [frame for frame in frames if not frame.is_corrupt]

    @staticmethod
    def _start(container: Any, stream: Any) -> float:
        return float((stream.start_time or 0) * stream.time_base)

    def _stated_end(self, container: Any, stream: Any) -> float | None:
        """Where the file says that its video ends, in its own time; None where it says nothing about the video."""
        if "mpegts" in container.format.name:
            return None  # what FFmpeg gives is the time of the last packet
        if stream.duration:
            return self._start(container, stream) + float(stream.duration * stream.time_base)
        text = stream.metadata.get("DURATION", "")  # Matroska: 00:00:02.000000000
        try:
            hours, minutes, seconds = text.split(":")
            return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        except ValueError:
            only = len(container.streams) == 1 and container.duration
            return container.duration / self.av.time_base if only else None
