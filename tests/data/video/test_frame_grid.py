"""Frames that are taken of videos whose rate is nearly, or not at all, a multiple of the wanted one."""

from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from fedmed.data.video.file_source import open_video
from fedmed.data.video.frame_settings import SAME, FrameGrid, frame_grid, frames_between
from fedmed.data.video.stored_video import Extraction, StoredVideo, foretold, space_needed
from fedmed.errors import DataError

NTSC, DOUBLE, FILM = Fraction(30000, 1001), Fraction(60000, 1001), Fraction(24000, 1001)


@pytest.mark.parametrize("source", [2.5, 5, 7.5, 10, 12.5, 25, 30, 60])
@pytest.mark.parametrize("rate", [0.3, 0.5, 1, 2.5, 4, 5, 10, 25, 30])
def test_of_whole_rates_and_exact_multiples_nothing_changes(source, rate):
    assert frame_grid(float(source), rate) == FrameGrid(rate, SAME, None)
    assert frame_grid(None, rate) == FrameGrid(rate)


@pytest.mark.parametrize(
    ("source", "rate", "steps"),
    [(NTSC, 10, 3), (NTSC, 5, 6), (NTSC, 1, 30), (NTSC, 0.1, 300), (DOUBLE, 10, 6), (DOUBLE, 0.1, 600),
     (FILM, 12, 2), (FILM, 1, 24), (NTSC, 30, 1), (9.98, 10, 1), (19.92, 10, 2), (7.49, 2.5, 3)],
)  # fmt: skip
def test_each_nth_frame_is_taken_of_nearly_a_multiple(source, rate, steps):
    grid = frame_grid(float(source), rate)
    assert grid.steps == steps and grid.rate == pytest.approx(float(source) / steps)
    assert 0 < grid.slack < 1 / source


@pytest.mark.parametrize(("source", "rate"), [(NTSC, 25), (DOUBLE, 25), (FILM, 5), (19.85, 10), (4.9, 5), (NTSC, 60)])
def test_other_ratios_are_taken_by_time(source, rate):
    assert frame_grid(float(source), rate) == FrameGrid(rate)


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts"])
@pytest.mark.parametrize(("source", "rate", "steps"), [(NTSC, 10, 3), (DOUBLE, 10, 6), (FILM, 12, 2), (NTSC, 1, 30)])
def test_frames_of_a_file(write_video, settings, number_of, name, source, rate, steps):
    """Times in whole milliseconds, as these files have them, move no frame."""
    path, seconds = write_video(name, frames=200, rate=source), 200 / source
    extraction = Extraction(path, settings(rate=rate))
    numbers = [number_of(frame) for frame in extraction]
    assert numbers == [number % 50 for number in range(0, 200, steps)]
    facts = extraction.facts()
    assert facts["rate"] == pytest.approx(float(source) / steps, rel=1e-5) and facts["repeated"] == 0
    assert facts["seconds"] == pytest.approx(float(seconds), abs=0.05)
    assert space_needed([path], settings(rate=rate)).frames == pytest.approx(facts["frames"], abs=1)


def test_a_video_without_an_even_rate_is_taken_by_time(write_video, settings):
    seconds = np.cumsum(np.tile([0.02, 0.07, 0.04], 20))
    path = write_video(frames=60, seconds=seconds.tolist())
    assert open_video(path).steady_rate() is None, "far apart from the 100 a second that FFmpeg guesses"
    assert Extraction(path, settings(rate=10)).grid == FrameGrid(10)


@pytest.mark.parametrize(("between", "known"), [(1 / 30, 30), (1.001 / 30, 29.97), (0.5, 2), (1.001, 0.999)])
def test_frames_of_a_folder(tmp_path, frame, settings, between, known):
    for number in range(60):
        Image.fromarray(frame(number)).save(tmp_path / f"{number:03}.png")
    times = [f"{number:03}.png,{number * between:.3f}" for number in range(60)]
    (tmp_path / "frames.csv").write_text("\n".join(["file,second", *times]))
    assert open_video(tmp_path).steady_rate() == pytest.approx(known, rel=5e-4)
    (tmp_path / "frames.csv").write_text("\n".join(["file,second", *times[:20], *times[25:]]))
    assert open_video(tmp_path).steady_rate() is None, "with a gap"
    for wanted in (1, 0.7, 10, None):
        extraction = Extraction(tmp_path, settings(rate=wanted))
        length, told = sum(1 for _ in extraction), foretold(tmp_path, settings(rate=wanted))
        facts = extraction.facts()
        assert (len(told), told.facts["rate"], told.start) == (length, facts["rate"], facts["first_second"])
        assert np.allclose(
            [told.facts["seconds"], *told.times], [facts["seconds"], *StoredVideo(tmp_path, tmp_path, facts).times]
        )
    (tmp_path / "pictures.csv").write_text("file\n000.png\n001.png")
    assert open_video(tmp_path).steady_rate() is None


def test_an_interval_of_one_frame_stays_one(settings):
    """The paper's 0.2 s at 5 frames a second, of a video of 29.97."""
    assert frames_between(0.2, frame_grid(float(NTSC), 5).rate) == 1
    assert frames_between(0.2, frame_grid(float(NTSC), 10).rate) == 2
    with pytest.raises(DataError, match="less than one frame"):
        frames_between(0.19, 5)
