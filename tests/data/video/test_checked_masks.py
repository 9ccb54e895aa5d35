"""Masks are looked at when a list is opened, each once."""

import pytest

from fedmed.data.video import frame_masks
from fedmed.data.video import listed_videos as checked_masks
from fedmed.data.video.listed_videos import MaskedVideos
from fedmed.errors import DataError


def test_a_wrong_mask_is_told_before_the_first_batch(masked, write_video):
    video = write_video()
    for changes, words in (
        ({"value": 7}, r"00001000.png: the mask has the value 7; use 0, 1"),
        ({"shape": (24, 30)}, r"00001000.png: the mask has shape \(24, 30\), and its video"),
    ):
        masked(video, [0, 25], 25)
        with pytest.raises(DataError, match=words):
            masked(video, [25], 25, **changes)


def test_masks_are_looked_at_once(masked, write_video, settings, tmp_path, monkeypatch):
    video, read = write_video(), []
    real = frame_masks.picture
    monkeypatch.setattr(frame_masks, "picture", lambda path: read.append(path) or real(path))
    masked(video, range(0, 50, 5), 25, rate=5)
    again = (tmp_path, tmp_path / "datalist.json", "training")
    MaskedVideos(*again, ["shaft"], settings(rate=5), tmp_path / "cache")
    assert len(read) == 10
    with pytest.raises(DataError, match="00000000.png: the mask has the value 1; use 0"):
        MaskedVideos(*again, [], settings(rate=5), tmp_path / "cache")
    assert len(read) == 11, "other classes are another question"
    masked(video, [25], 25, rate=5)
    assert len(read) == 21, "one of them was written anew"


def test_a_full_disk_does_not_hinder_what_is_right(masked, write_video, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checked_masks, "write_atomically", full)
    assert len(masked(write_video(), [25], 25).files[0]) == 1
    assert "No space left on device); the masks are looked at each time" in caplog.text
