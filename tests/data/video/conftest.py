"""Small videos, made on the fly."""

import json
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.listed_videos import MaskedVideos
from fedmed.data.video.stored_video import StoredVideo

CODECS = {".avi": "mpeg4", ".vob": "mpeg2video"}  # others: H.264


def grey(number, height=24, width=32):
    """A frame whose grey value tells its number, from 40 in steps of 4."""
    return np.full((height, width, 3), 40 + 4 * (number % 50), np.uint8)


@pytest.fixture
def frame():
    return grey


@pytest.fixture
def write_video(tmp_path):
    """Return a function that writes a video of about two seconds and gives its path."""

    def write(name="a.mp4", frames=50, rate=25, seconds=None, rotation=0, gop=10, first=0):
        if isinstance(frames, int):
            frames = [grey(number) for number in range(frames)]
        path = tmp_path / name
        with av.open(str(path), "w") as container:
            stream = container.add_stream(CODECS.get(path.suffix, "libx264"), rate=rate)
            stream.height, stream.width = frames[0].shape[:2]
            stream.pix_fmt, stream.codec_context.gop_size = "yuv420p", gop
            stream.codec_context.max_b_frames, stream.codec_context.bit_rate = 0, 2_000_000
            stream.codec_context.thread_count = 1
            if path.suffix != ".vob":  # MPEG-2 has the time base of its rate
                stream.codec_context.time_base = Fraction(1, 1000)
            if rotation:
                stream.set_display_rotation(rotation)
            for number, pixels in enumerate(frames):
                picture = av.VideoFrame.from_ndarray(pixels, format="rgb24")
                second = first + number / rate if seconds is None else seconds[number]
                tick = Fraction(1, rate) if path.suffix == ".vob" else Fraction(1, 1000)
                picture.pts, picture.time_base = round(second / tick), tick
                container.mux(stream.encode(picture))
            container.mux(stream.encode())
        return path

    return write


@pytest.fixture
def two_streams(tmp_path):
    """Return a function that writes a film of two streams of grey frames, (brightness, height, width, disposition)."""

    def write(name, *kinds):
        path = tmp_path / name
        with av.open(str(path), "w") as container:
            streams = [container.add_stream("libx264", rate=5) for _ in kinds]
            for stream, (_, height, width, disposition) in zip(streams, kinds, strict=True):
                stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
                stream.disposition = disposition
            for number in range(10):
                for stream, (brightness, *_) in zip(streams, kinds, strict=True):
                    grey = np.full((stream.height, stream.width, 3), brightness, np.uint8)
                    picture = av.VideoFrame.from_ndarray(grey, format="rgb24")
                    picture.pts, picture.time_base = number, Fraction(1, 5)
                    container.mux(stream.encode(picture))
            for stream in streams:
                container.mux(stream.encode())
        return path

    return write


@pytest.fixture
def damaged(write_video):
    """Return a function that writes a video of which one packet in the middle is overwritten."""

    def write(name="damaged.mp4", number=25):
        path = write_video(name)
        with av.open(str(path)) as container:
            packet = [(packet.pos, packet.size) for packet in container.demux(video=0)][number]
        content = bytearray(path.read_bytes())
        content[packet[0] : packet[0] + packet[1]] = b"\xff" * packet[1]
        path.write_bytes(content)
        return path

    return write


@pytest.fixture
def cut_short(tmp_path):
    """Return a function that copies a video with its index in front, as ``name``, and keeps a share of its bytes."""

    def cut(source, name, share):
        path = tmp_path / name
        with av.open(str(source)) as old, av.open(str(path), "w", options={"movflags": "faststart"}) as new:
            stream = new.add_stream_from_template(old.streams.video[0])
            for packet in old.demux(video=0):
                if packet.dts is not None:
                    packet.stream = stream
                    new.mux(packet)
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
        return path

    return cut


@pytest.fixture(scope="session")
def video():
    """Return a function that tells of a prepared video that is nowhere: its length, rate, times, name and beginning."""

    def made(seconds=10.0, rate=1.0, times=None, source="a.mp4", first_second=0.0):
        frames = len(times) if times is not None else int(np.ceil(seconds * rate - 1e-6))
        facts = {"frames": frames, "rate": rate, "times": times, "seconds": seconds, "first_second": first_second}
        return StoredVideo(Path(source), Path("unused"), facts)

    return made


@pytest.fixture
def settings():
    """Return a function that makes settings of the small videos; keyword arguments change them."""
    return lambda **changes: FrameSettings(**{"size": (24, 32), "rate": 5, **changes})


@pytest.fixture
def masked(settings, tmp_path):
    """Return a function that writes masks of a video's frames, by their numbers, and opens both; 10 frames a second."""

    def open(video, numbers, fps, value=1, shape=(24, 32), **changes):
        (tmp_path / "masks").mkdir(exist_ok=True)
        for number in numbers:
            mask = Image.fromarray(np.full(shape, value, np.uint8))
            mask.save(tmp_path / f"masks/{round(1000 * number / fps):08d}.png")
        datalist, chosen = tmp_path / "datalist.json", settings(**{"rate": 10, **changes})
        datalist.write_text(json.dumps({"training": [{"video": video.name, "masks": "masks"}]}))
        return MaskedVideos(tmp_path, datalist, "training", ["shaft"], chosen, tmp_path / "cache")

    return open


@pytest.fixture
def number_of():
    """Return a function that tells frames of ``write_video`` by their grey value."""
    return lambda pixels: int(np.rint((np.asarray(pixels, float).mean() - 40) / 4))
