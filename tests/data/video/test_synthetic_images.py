"""Folders of single pictures: each taken once, without a history; a simulator's must show instruments."""

import json

import cv2
import numpy as np
import pytest
import torch

from fedmed.data.video.clips import ClipRule
from fedmed.data.video.listed_videos import SyntheticImages, masked_clip_loader
from fedmed.errors import DataError

RULE = ClipRule("history", 4, interval=0.2)


@pytest.fixture
def images(settings, tmp_path):
    """Return a function that writes a folder of grey pictures with masks, lists and opens it."""

    def images(masks=(1, 2, 3), listed=None, **changes):
        for name in ("images", "masks"):
            (tmp_path / name).mkdir(exist_ok=True)
        for number, value in enumerate(masks):
            cv2.imwrite(str(tmp_path / "images" / f"p{number}.png"), np.full((24, 32, 3), 60 + 40 * number, np.uint8))
            cv2.imwrite(str(tmp_path / "masks" / f"{1000 * number:08d}.png"), np.full((24, 32), value, np.uint8))
        names = [f"p{number}.png" for number in range(len(masks))] if listed is None else listed
        (tmp_path / "images" / "pictures.csv").write_text("\n".join(["file", *names, ""]))
        return opened(tmp_path, settings(**changes))

    return images


def opened(folder, settings):
    entries = [{"video": "images", "masks": "masks"}]
    (folder / "datalist.json").write_text(json.dumps({"training": entries}))
    classes = ["shaft", "wrist", "jaw"]
    return SyntheticImages(folder, folder / "datalist.json", "training", classes, settings, folder / "cache")


@pytest.mark.parametrize("rate", [5, 0.3, None])
def test_every_picture_once_and_never_another_before_it(images, rate):
    """Whatever the rate; a batch has the picture as often as a clip has frames, and its own mask."""
    prepared = images(rate=rate)
    assert len(prepared.videos[0]) == 3 and len(prepared.files[0]) == 3
    batches = list(masked_clip_loader(prepared, RULE, 3, 2, seed=0))
    for batch in batches:
        assert batch["image"].shape == (3, 4, 3, 24, 32) and batch["labels"].shape == (3, 1, 24, 32)
        grey = batch["image"].float().mean((2, 3, 4))
        assert torch.equal(grey, grey[:, :1].expand(-1, 4))
        assert torch.allclose(grey[:, 0], 20.0 + 40 * batch["labels"].float().mean((1, 2, 3)), atol=2)
    again = list(masked_clip_loader(prepared, RULE, 3, 2, seed=0))
    assert all(torch.equal(one["image"], two["image"]) for one, two in zip(batches, again, strict=True))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"masks": (0, 0)}, "list .training.: none of its 2 masks shows an instrument"),
        ({"masks": ()}, "images: has no frames; put pictures into it"),
        ({"listed": ["../p0.png"]}, "is not a path below the folder"),
        ({"listed": ["p0.png", "gone.png", "p2.png"]}, "the frame gone.png cannot be read"),
        ({"listed": ["p0.png"]}, "is of 1 s, but .*images ends at"),
        ({"masks": (1, 9, 9)}, "has the value 9; use 0, 1"),
    ],
)
def test_folders_that_nothing_can_be_learnt_from(images, made, words):
    with pytest.raises(DataError, match=words):
        images(**made)


def test_a_video_is_no_folder_of_pictures(images, write_video, tmp_path, settings):
    images()
    (tmp_path / "images" / "pictures.csv").rename(tmp_path / "images" / "frames.csv")
    (tmp_path / "images" / "frames.csv").write_text("file,second\np0.png,0\np1.png,1\np2.png,2\n")
    with pytest.raises(DataError, match="is a video, and single pictures are needed"):
        opened(tmp_path, settings(rate=1))
    (tmp_path / "images" / "frames.csv").rename(tmp_path / "images" / "pictures.csv")
    (tmp_path / "images" / "pictures.csv").write_text("name\np0.png\n")
    with pytest.raises(DataError, match="pictures.csv: needs the columns 'file'"):
        opened(tmp_path, settings(rate=1))
