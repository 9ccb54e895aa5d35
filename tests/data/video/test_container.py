"""Videos and frames that no recording has are refused before they are decoded."""

import os

import numpy as np
import pytest
from PIL import Image

from fedmed.data import image_size
from fedmed.data.video import file_source as container
from fedmed.data.video import stored_video as extraction
from fedmed.data.video.file_source import open_video
from fedmed.data.video.source import Damage
from fedmed.data.video.stored_video import Extraction
from fedmed.errors import DataError


def test_frames_and_lengths_that_no_recording_has_are_refused_by_the_header(write_video, monkeypatch):
    path = write_video(frames=50, rate=25)
    monkeypatch.setattr(container, "FRAME_PIXELS", 24 * 32 - 1)
    with pytest.raises(DataError, match=r"a\.mp4: states frames of 32×24 pixels, more than 767"):
        open_video(path)
    monkeypatch.setattr(container, "FRAME_PIXELS", 24 * 32)
    monkeypatch.setattr(container, "LONGEST", 1.0)
    with pytest.raises(DataError, match=r"a\.mp4: lasts 0 hours, more than 0; its times are wrong"):
        open_video(path)


def test_a_size_that_changes_midway_is_limited_by_the_decoder(write_video, monkeypatch):
    path = write_video(frames=10, rate=25)
    monkeypatch.setattr(container, "_LARGEST", {"max_pixels": "100"})
    with pytest.raises(DataError, match="damaged"):
        list(open_video(path).frames(Damage(path)))


def test_times_that_run_on_for_days_are_refused(write_video, settings, monkeypatch):
    monkeypatch.setattr(extraction, "LONGEST", 1.0)
    with pytest.raises(DataError, match="lasts 0 hours"):
        list(Extraction(write_video(frames=50, rate=25), settings()))


@pytest.mark.parametrize("leads_to", [None, "/dev/zero"])
def test_only_regular_files_are_opened_as_videos(tmp_path, leads_to):
    path = tmp_path / "a.mp4"
    if leads_to:
        path.symlink_to(leads_to)
    else:
        os.mkfifo(path)
    with pytest.raises(DataError, match="not a file"):
        open_video(path)
    frames = tmp_path / "frames"
    frames.mkdir()
    path.rename(frames / "0001.png")
    with pytest.raises(DataError, match=r"0001\.png: is a .*, not a file"):
        list(open_video(frames, names_rate=1).frames(Damage(frames)))


def test_a_frame_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    Image.fromarray(np.zeros((30, 40, 3), np.uint8)).save(tmp_path / "0001.png")
    monkeypatch.setattr(image_size, "PIXELS", 1199)
    with pytest.raises(DataError, match=r"0001\.png: does not fit into memory: 30×40 pixels"):
        list(open_video(tmp_path, names_rate=1).frames(Damage(tmp_path)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    with pytest.raises(DataError, match=r"0001\.png: does not fit into memory \(Image size"):
        list(open_video(tmp_path, names_rate=1).frames(Damage(tmp_path, refuse=False)))
