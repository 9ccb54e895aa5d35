"""A video file, streamed with PyAV: true times, and damage told from the end."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedmed.data.regular_file import file_bytes
from fedmed.data.video.container import opened_video, start_of, stated_end
from fedmed.data.video.frame_grid import NEARLY
from fedmed.data.video.frame_rules import Frame
from fedmed.data.video.source import Damage, Scaler, ShownFrame, need_av
from fedmed.errors import DataError, first_line

SHORTFALL, FRAMES_SHORT = 0.5, 2  # seconds or mean frames by which the last packet may end before what the file states
NEAR = 10.0  # seconds that are sooner decoded than skipped


class VideoFile:
    """A file in any format and codec that FFmpeg reads. Its memory does not depend on its length.

    Times are those at which frames are shown, in seconds, as the file has them: a variable frame rate needs nothing
    more. The file cannot lead FFmpeg to other files or into the network.
    """

    single = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.av = need_av()
        try:
            empty = file_bytes(path) == 0
        except OSError as error:
            raise DataError(f"{path}: the video cannot be read ({error.strerror}); restore it") from error
        if empty:
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
                    until = last + (frame.duration or 0) * tick
                    yield ShownFrame(last, until, frame, scaler)
            stated = stated_end(container, stream)
            allowed = max(SHORTFALL, FRAMES_SHORT * (end - start_of(stream)) / max(1, packets))
            if stated is not None and end < stated - allowed and not damage.cut_short:
                damage.add(
                    "cut_short", f"it ends at {end:.2f} s of the {stated:.2f} s that it states: it was cut short"
                )
                damage.cut_short = True

    def sample(self, count: int, height: int, width: int, exact: bool = False) -> list[Frame]:
        """The first frame that can be decoded after the key frame before each of ``count`` times, or after the time."""
        found: list[Frame] = []
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
                    found.append(scaler(frame, height, width))
                except (self.av.FFmpegError, StopIteration):
                    frames = None  # damage is told when all frames are read
        return found

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
