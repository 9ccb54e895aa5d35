"""Batches of the frames that have masks, and what an engine makes of them."""

import json
from fractions import Fraction

import cv2
import numpy as np
import pytest
import torch

from fedmed.data.augment.clip_views import ClipViews
from fedmed.data.video.clips import ClipRule
from fedmed.data.video.listed_videos import MaskedVideos, masked_clip_loader, masked_frame_loader, masked_frames
from fedmed.errors import DataError
from fedmed.training.video_frames import FrameBatches

NTSC, DOUBLE = Fraction(30000, 1001), Fraction(60000, 1001)
SINGLE = ClipRule("history", 1)


@pytest.fixture
def prepared(write_video, settings, tmp_path):
    """Two videos of 2 s at 5 frames a second; masks of frames 0, 3 and 5, and of frame 2; values tell the video."""
    return opened(tmp_path, write_video, settings, [(0, 600, 1000), (400,)])


def opened(folder, write_video, settings, times):
    """Videos with masks at some milliseconds; the list is read from a file."""
    entries = []
    for number, of_video in enumerate(times):
        (folder / f"masks_{number}").mkdir()
        for time in of_video:
            mask = np.full((24, 32), number + 1, np.uint8)
            cv2.imwrite(str(folder / f"masks_{number}" / f"{time:08d}.png"), mask)
        entries.append({"video": write_video(f"{number}.mp4", first=number).name, "masks": f"masks_{number}"})
    (folder / "datalist.json").write_text(json.dumps({"training": entries}))
    classes = ["shaft", "wrist"]
    return MaskedVideos(folder, folder / "datalist.json", "training", classes, settings(), folder / "cache")


def test_each_frame_with_a_mask_once_in_the_order_of_time(prepared):
    clips = masked_frames(prepared, ClipRule("history", 2, interval=0.2))
    assert clips.videos.tolist() == [0, 0, 0, 1] and clips.rows.tolist() == [[0, 0], [2, 3], [4, 5], [1, 2]]
    batches = list(masked_frame_loader(prepared, SINGLE, 3))
    assert [len(batch["image"]) for batch in batches] == [3, 1]
    labels = torch.cat([batch["labels"] for batch in batches])
    assert labels.shape == (4, 1, *batches[0]["image"].shape[-2:]) and labels.dtype == torch.int64
    assert labels.flatten(1).unique(dim=1).flatten().tolist() == [1, 1, 1, 2]
    assert torch.cat([batch["time"] for batch in batches]).flatten().tolist() == pytest.approx([0, 0.6, 1.0, 0.4])


def test_an_epoch_of_training_has_each_frame_once_and_follows_from_the_seed(prepared):
    def order(seed, steps=4):
        loader = masked_clip_loader(prepared, SINGLE, 2, steps, seed)
        return [(int(v), float(t)) for b in loader for v, t in zip(b["video"], b["time"][:, -1], strict=True)]

    drawn = order(0)
    assert len(drawn) == 8 and len(set(drawn[:4])) == len(set(drawn[4:])) == 4
    assert order(0) == drawn != order(1) and order(0, 2) == drawn[:4]
    with pytest.raises(DataError, match="0 batches of 2 frames"):
        masked_clip_loader(prepared, SINGLE, 2, 0, 0)


def test_masks_move_with_their_frames(prepared):
    (batch,) = masked_frame_loader(prepared, SINGLE, 4)
    batch["labels"][..., : batch["labels"].shape[-1] // 2] = 0
    still, masks = FrameBatches()(batch)
    assert still.shape[1] == 3 and torch.equal(masks, batch["labels"][:, 0])
    plain = {name: 0.0 for name in ("zoom", "shift", "degrees", "brightness", "contrast", "saturation", "hue")}
    mirrored, moved = FrameBatches(ClipViews(flip=1.0, **plain))(batch)
    assert moved.dtype == torch.int64 and torch.equal(moved, masks.flip(-1))
    assert torch.allclose(mirrored, still.flip(-1), atol=1e-5)


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv"])
@pytest.mark.parametrize(("fps", "every"), [(NTSC, 30), (NTSC, 3), (DOUBLE, 60), (Fraction(25), 25)])
def test_masks_count_to_the_end_of_a_video(masked, write_video, number_of, caplog, name, fps, every):
    """In 20 s frames of 29.97 a second drift by more than one against 10 a second."""
    count = int(20 * fps)
    opened = masked(write_video(name, frames=count, rate=fps), range(0, count, every), fps)
    (files,), (stored,) = opened.files, opened.videos
    assert len(files) == len(range(0, count, every)) and "left out" not in caplog.text
    for frame, path in files.items():
        assert number_of(stored.frames[frame]) == round(int(path.stem) / 1000 * fps) % 50


def test_masks_that_are_left_out_are_told_once(masked, write_video, caplog):
    video = write_video(frames=100)
    given = (video, range(0, 100, 2), 25)
    assert [len(masked(*given, rate=rate).files[0]) for rate in (5, 5, 25)] == [10, 10, 50]
    (said,) = caplog.messages
    assert said.startswith("40 of 50 masks of a.mp4 are of no frame at 5 a second") and "at 25 a second all" in said


def test_masks_of_no_frame_that_is_used(write_video, settings, tmp_path):
    with pytest.raises(DataError, match=r"masks_1: no mask is of a frame of .*1.mp4 that is used; at 25 a second all"):
        opened(tmp_path, write_video, settings, [(400,), (440,)])
