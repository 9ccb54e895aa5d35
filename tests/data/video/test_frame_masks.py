"""Masks by frame: which frames have one, and what may be wrong with them."""

import cv2
import numpy as np
import pytest

from fedmed.data.video.frame_masks import FrameMasks
from fedmed.data.video.video_store import VideoStore
from fedmed.errors import DataError


@pytest.fixture
def masks(tmp_path):
    """Return a function that writes masks at some milliseconds and opens their folder."""

    def write(*times):
        (tmp_path / "masks").mkdir(exist_ok=True)
        for time in times:
            mask = np.zeros((24, 32), np.uint8)
            mask[:, 16:] = 1
            cv2.imwrite(str(tmp_path / "masks" / f"{time:08d}.png"), mask)
        return FrameMasks(tmp_path / "masks", range(2))

    return write


@pytest.fixture
def stored(write_video, settings, tmp_path):
    """A video of 2 s, 25 frames a second, of which 5 a second are taken."""
    return lambda **changes: VideoStore(tmp_path / "cache", settings(**changes)).get(write_video())


def test_a_frame_has_the_mask_of_what_it_shows(masks, stored):
    folder = masks(0, 400, 440, 1000, 1960)  # 440: between two frames of the store
    assert {frame: int(path.stem) for frame, path in folder.of(stored()).items()} == {0: 0, 2: 400, 5: 1000}
    each = stored(rate=None)
    assert sorted(folder.of(each)) == [0, 10, 11, 25, 49]


def test_masks_are_scaled_as_frames_are(masks, stored):
    video = stored(size=(12, 16))
    folder = masks(400)
    mask = folder.read(folder.of(video)[2], video)
    assert mask.shape == (12, 16) and mask.dtype == np.uint8
    assert np.array_equal(mask, np.repeat([[0] * 8 + [1] * 8], 12, 0))


def test_wrong_masks(masks, stored, tmp_path):
    video = stored()
    with pytest.raises(DataError, match="the masks cannot be read"):
        FrameMasks(tmp_path / "gone", range(2)).files()
    with pytest.raises(DataError, match=r"00009000.png: is of 9 s, but .* ends at 2 s"):
        masks(9000).of(video)
    (tmp_path / "masks" / "x.png").touch()
    with pytest.raises(DataError, match="x.png: the name is not a time"):
        masks(0).of(video)
