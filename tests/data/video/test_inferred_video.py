"""Inference of a damaged video: every frame that can be read, and at the end what is wrong."""

import importlib
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from fedmed.data.video.stored_video import Extraction
from fedmed.files import CHECKOUT

BUNDLE = CHECKOUT / "bundles" / "surgical_tool_classification"
if str(BUNDLE) not in sys.path:
    sys.path.append(str(BUNDLE))
videos = importlib.import_module("surgical_tools.videos")
BundleInputError = importlib.import_module("surgical_tools.errors").BundleInputError


def taken(path, rate=5.0):
    """Seconds of the frames, and what is said after them."""
    seconds = []
    try:
        for second, _ in videos.frames_at(path, rate):
            seconds.append(second)
    except BundleInputError as error:
        return seconds, str(error)
    return seconds, ""


@pytest.mark.parametrize(
    ("name", "made", "frames"),
    [("a.mp4", {}, 10), ("a.mkv", {}, 10), ("a.ts", {"first": 3}, 10), ("few.mp4", {"frames": 5, "rate": 1}, 25)],
)
def test_of_a_whole_video_nothing_is_said(write_video, name, made, frames):
    seconds, said = taken(write_video(name, **made))
    assert len(seconds) == frames and said == ""


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv"])
@pytest.mark.parametrize("fps", [Fraction(30000, 1001), Fraction(60000, 1001), Fraction(30), Fraction(25), Fraction(5)])
def test_frames_are_those_of_training(write_video, settings, number_of, name, fps):
    path = write_video(name, frames=150, rate=fps)
    for rate in (5, 10, 25):
        trained = Extraction(path, settings(rate=rate))
        expected = [number_of(frame) for frame in trained]
        inferred = [(second, number_of(picture)) for second, picture in videos.frames_at(path, rate)]
        assert [number for _, number in inferred] == expected, rate
        times = [k / trained.facts()["rate"] for k in range(len(inferred))]
        assert [second for second, _ in inferred] == pytest.approx(times), rate


def test_a_damaged_packet_is_told_after_the_last_frame(damaged):
    seconds, said = taken(damaged())
    assert len(seconds) == 10  # the frame before is shown for longer
    assert "damaged.mp4 is damaged: packets that cannot be decoded: " in said and "the first at about 1.0 s" in said


@pytest.mark.parametrize(("name", "share"), [("short.mkv", 0.6), ("short.mp4", 0.8)])
def test_a_video_that_was_cut_short_is_told_from_one_that_ends(write_video, cut_short, name, share):
    seconds, said = taken(cut_short(write_video(), name, share))
    assert 0 < len(seconds) < 10 and f"{name} is damaged" in said
    assert "it ends at" in said and "of the 2.0 s that it states" in said


def test_the_table_has_a_row_that_says_so(damaged):
    """Videos after a damaged one are read as ever."""
    dataset = importlib.import_module("surgical_tools.frame_dataset")
    first, second = damaged("a.mp4"), damaged("b.mp4")
    paths = [str(first), str(second)]
    made = dataset.FrameDataset(paths, lambda item: item, Path(first).parent, (24, 32), rate=5.0)
    rows = [(row["name"], row["error"] != "") for row in made]
    assert rows == [*[("a.mp4", False)] * 10, ("a.mp4", True), *[("b.mp4", False)] * 10, ("b.mp4", True)]


def test_frames_of_too_many_pixels_are_never_decoded(write_video, monkeypatch):
    monkeypatch.setattr(videos, "LARGEST", {"max_pixels": "100"})
    seconds, said = taken(write_video())
    assert seconds == [] and "none of its frames can be decoded" in said
