"""Number of masks that count at a rate, without the video being gone through again."""

from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from fedmed.data.video.frame_masks import FrameMasks, better_rate, used_masks
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.stored_video import Extraction, StoredVideo

NTSC = Fraction(30000, 1001)


@pytest.fixture
def made(write_video, settings, tmp_path):
    """Return a function: rate and numbers of frames with masks -> folder of masks, and the video at 1 a second."""

    def make(fps, numbers, path=None):
        path = path or write_video(frames=100, rate=fps)
        (tmp_path / "masks").mkdir()
        for number in numbers:
            Image.fromarray(np.ones((24, 32), np.uint8)).save(tmp_path / f"masks/{round(1000 * number / fps):08d}.png")
        extraction = Extraction(path, settings(rate=1))
        assert sum(1 for _ in extraction)
        return FrameMasks(tmp_path / "masks", range(2)), StoredVideo(path, tmp_path, extraction.facts())

    return make


@pytest.mark.parametrize(("fps", "every", "rates"), [
    (Fraction(25), 5, {1: 4, 5: 20, 10: 20, 25: 20, 2: 4}), (NTSC, 6, {1: 4, 5: 17, 10: 17, 30: 17, 25: 6}),
])  # fmt: skip
def test_as_many_as_when_it_is_taken_at_that_rate(made, fps, every, rates):
    masks, video = made(fps, range(0, 100, every))
    for rate, number in rates.items():
        taken = Extraction(video.source, FrameSettings((24, 32), rate))
        assert sum(1 for _ in taken)
        assert used_masks(masks, video, rate) == len(masks.of(StoredVideo(video.source, video.path, taken.facts())))
        assert used_masks(masks, video, rate) == number
    assert used_masks(masks, video, None) == rates[1], "at its own"


@pytest.mark.parametrize(("fps", "numbers", "rate", "words"), [
    (25, range(0, 100, 5), 1, "at 5 a second all"), (25, range(0, 100, 5), 10, "at 25 a second all"),
    (25, range(0, 100, 25), 2, "at 5 a second all"), (25, [0, 11], 5, "at 25 a second all"),
    (NTSC, range(0, 90, 30), 25, "at 29.97 a second all"), (NTSC, range(0, 90, 6), 1, "at 5 a second all"),
    (10, range(10), None, "at 10 a second all"), (10, [0, 0.5, 1], 10, "at no usual rate all of them are used"),
])  # fmt: skip
def test_the_next_rate_that_uses_all(made, fps, numbers, rate, words):
    masks, video = made(fps, numbers)
    assert better_rate(masks, video, rate).startswith(words)


def test_single_pictures_have_no_rate(made, tmp_path, frame):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(4):
        Image.fromarray(frame(number)).save(folder / f"{number}.png")
    (folder / "pictures.csv").write_text("file\n0.png\n1.png\n2.png\n3.png")
    masks, video = made(1, range(4), folder)
    assert used_masks(masks, video, 0.5) == used_masks(masks, video, None) == 4
