"""Files of hospitals' recorders: mirrors, previews, joined files, frames without times; in training and inference."""

import importlib
import struct
import sys
from fractions import Fraction
from types import SimpleNamespace

import av
import numpy as np
import pytest

from fedmed.data.prepare.video_layouts.layout import MOVIES
from fedmed.data.video import file_source as container
from fedmed.data.video import stored_video as extraction
from fedmed.data.video.stored_video import Extraction
from fedmed.errors import DataError
from fedmed.files import CHECKOUT

BUNDLE = CHECKOUT / "bundles" / "surgical_tool_classification"
if str(BUNDLE) not in sys.path:
    sys.path.append(str(BUNDLE))
videos = importlib.import_module("surgical_tools.videos")
BundleInputError = importlib.import_module("surgical_tools.errors").BundleInputError
Disposition = av.stream.Disposition


@pytest.fixture(params=["training", "inference"])
def read(request, settings):
    """Return a function that reads all frames of a video as training or as a bundle's inference does."""

    def trained(path, **changes):
        return [np.array(frame) for frame in Extraction(path, settings(**changes))]

    def inferred(path, **_):
        return [np.asarray(picture) for _, picture in videos.frames_at(path, 5.0)]

    return trained if request.param == "training" else inferred


class _Stream:
    """Attributes that a choice among streams looks at."""

    def __init__(self, size, disposition):
        self.codec_context, self.disposition = size, disposition


def with_matrix(path, a, b, c, d):
    """Set the display matrix of an MP4's track: x' = a x + c y, y' = b x + d y."""
    content = bytearray(path.read_bytes())
    place = content.find(b"tkhd") + 4 + 4 + 36  # after version, times, layer, volume; of version 0
    fixed = [int(value * 65536) for value in (a, b, 0, c, d, 0, 0, 0)]
    content[place : place + 36] = struct.pack(">9i", *fixed, 1 << 30)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["a.mp4", "a.mov"])
@pytest.mark.parametrize("a, b", [(1, 0), (-1, 0), (0, 1), (0, -1)])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_display_matrix_turns_and_mirrors(write_video, read, name, a, b, mirrored):
    c, d = (b, -a) if mirrored else (-b, a)
    stored = np.full((24, 32, 3), 60, np.uint8)
    stored[:12, :16] = 220  # the quarter whose centre is 8 left of and 6 above the middle
    shown = read(with_matrix(write_video(name, frames=[stored] * 5), a, b, c, d), size=(24, 32) if a else (32, 24))[0]
    height, width = shown.shape[:2]
    x, y = width // 2 + a * -8 + c * -6, height // 2 + b * -8 + d * -6
    assert (height, width) == ((24, 32) if a else (32, 24))
    assert shown[y, x].min() > 200 and shown[height - 1 - y, width - 1 - x].max() < 80


@pytest.mark.parametrize(
    "first",
    [
        (20, 24, 32, Disposition(0)),  # smaller and not default
        (20, 8, 16, Disposition.default),  # far smaller, whatever its mark
        (20, 24, 32, Disposition.default),  # of two with the mark the larger
        (20, 48, 64, Disposition(0)),  # as large, without the mark
    ],
)
def test_a_preview_or_picture_before_the_recording_is_not_taken(two_streams, read, first):
    frames = read(two_streams("a.mkv", first, (180, 48, 64, Disposition.default)))
    assert len(frames) == 10 and all(abs(frame.mean() - 180) < 5 for frame in frames)


@pytest.mark.parametrize("kind", ["attached_pic", "timed_thumbnails", "still_image"])
def test_a_picture_is_no_recording(kind):
    """PyAV writes no file whose cover comes first."""
    size = SimpleNamespace(width=64, height=48)
    cover, film = _Stream(size, Disposition.default | Disposition[kind]), _Stream(size, Disposition(0))
    for choose in (container._recording, lambda streams: videos._recording(streams, Disposition)):
        assert choose([cover, film]) is film
        assert choose([cover]) is None


def test_of_two_equal_streams_the_first_is_taken(two_streams, read):
    both = [(brightness, 48, 64, Disposition.default) for brightness in (180, 20)]
    assert abs(read(two_streams("eyes.mkv", *both))[0].mean() - 180) < 5


@pytest.mark.parametrize("name", ["a.vob", "a.ts"])
def test_files_that_were_joined_are_refused(write_video, read, name):
    path = write_video(name)
    assert len(read(path)) in (10, 11)  # PyAV's VOB jumps by a frame
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises((DataError, BundleInputError), match="time goes back from|marked as damaged") as refused:
        read(path)
    if name == "a.vob" and refused.type is BundleInputError:
        assert "goes back from 2.0 to 0.0 s, so 49 frames are left out" in str(refused.value)


def test_first_frames_without_times_are_refused(read, tmp_path):
    path = tmp_path / "a.mkv"
    with av.open(str(path), "w", options={"avoid_negative_ts": "disabled"}) as file:
        stream = file.add_stream("libx264", rate=25)
        stream.height, stream.width, stream.pix_fmt = 24, 32, "yuv420p"
        for number in range(-12, 38):
            picture = av.VideoFrame.from_ndarray(np.full((24, 32, 3), 90, np.uint8), format="rgb24")
            picture.pts, picture.time_base = number, Fraction(1, 25)
            file.mux(stream.encode(picture))
        file.mux(stream.encode())
    with pytest.raises((DataError, BundleInputError), match=r"a.mkv: its frames have no times .*ffmpeg -r RATE"):
        read(path)


def test_frames_without_any_times_are_refused(write_video, read):
    with pytest.raises((DataError, BundleInputError), match="its frames have no times"):
        read(write_video("raw.h264"))


def test_a_picture_that_stands_for_more_than_an_hour_is_refused(write_video, read, monkeypatch):
    for module in (extraction, videos):
        monkeypatch.setattr(module, "LONGEST_GAP", 1.0)
    with pytest.raises((DataError, BundleInputError), match="nothing new is shown from 0.1 to 1.9 s, more than"):
        read(write_video(frames=4, seconds=[0, 0.1, 1.9, 2.0]))


def test_inference_opens_every_kind_of_file_that_preparation_does():
    assert set(importlib.import_module("surgical_tools.frames").VIDEOS) == MOVIES
