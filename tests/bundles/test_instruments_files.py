"""Clips that the bundle for instruments infers, and the masks that it writes."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from ignite.engine import Engine
from instrument_nets.clip_dataset import ClipDataset
from instrument_nets.clips import LoadClipd, interval_in_frames, with_history
from instrument_nets.errors import BundleInputError
from instrument_nets.frames import list_frames
from instrument_nets.mask_files import MaskWriter
from PIL import Image

from fedmed.data.video.frame_masks import FrameMasks

APP = Path(__file__).resolve().parents[2] / "monailabel_app"
sys.path += [str(APP)]
SIZE = (32, 40)


def grey(value, size=(64, 48)):
    return Image.new("RGB", size, (value, value, value))


def values(clip):
    """Grey value of each frame of (3 · k, H, W)."""
    return (clip[::3, 0, 0] * 255).round().int().tolist()


@pytest.mark.parametrize(("interval", "expected"), [(0.2, [[0, 0, 0, 0], [3, 3, 1, 3], [0, 2, 4, 6]])])
def test_the_history_of_a_video_is_that_of_training(interval, expected):
    """Ten frames a second: two frames are 0.2 s; where there is no earlier frame, the current one stands for it."""
    frames = ((n / 10, grey(n)) for n in range(7))
    load = LoadClipd("image", SIZE, 4)
    result = [values(load({"image": clip})["image"]) for _, clip in with_history(frames, 10, interval, 4, SIZE)]
    assert [result[n] for n in (0, 3, 6)] == expected


def test_single_pictures_stand_for_their_own_history(tmp_path):
    grey(7).save(tmp_path / "a.png")
    made = LoadClipd("image", SIZE, 4)({"image": str(tmp_path / "a.png")})
    assert made["image"].shape == (12, *SIZE) and values(made["image"]) == [7] * 4
    assert made["image_meta_dict"]["spatial_shape"] == (64, 48), "width and height"


def test_pictures_whose_times_are_known_are_one_anothers_history(tmp_path):
    for name, value in (("f00", 1), ("f02", 2), ("f04", 3), ("f09", 4)):
        grey(value).save(tmp_path / f"{name}.png")
    (tmp_path / "other").mkdir()
    grey(9).save(tmp_path / "other/f06.png")
    paths = list_frames(tmp_path)
    load = LoadClipd("image", SIZE, 4)
    rows = list(ClipDataset(paths, load, tmp_path, SIZE, names_rate=10))
    clips = {row["name"]: values(row["image"]) for row in rows}
    assert clips["f04.png"] == [3, 1, 2, 3] and clips["f00.png"] == [1] * 4
    assert clips["other/f06.png"] == [9] * 4, "of another folder"
    assert {row["name"]: row["second"] for row in rows}["f09.png"] == pytest.approx(0.9)


def test_what_an_earlier_inference_wrote_is_no_frame(tmp_path, caplog):
    for name in ("a.png", "masks/a.png", "overlays/a.jpg", "timelines/a.png", "ribbons/a.png", "more/masks/b.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        grey(7).save(tmp_path / name)
    result = list_frames(tmp_path, tmp_path / "more" / "..")
    assert [Path(path).relative_to(tmp_path).as_posix() for path in result] == ["a.png", "more/masks/b.png"]
    assert "4 pictures of an earlier inference are left out, such as a.png" in caplog.text
    assert len(list_frames(tmp_path, tmp_path / "eval")) == 6


@pytest.mark.parametrize("table", [False, True])
def test_frames_of_two_videos_in_one_folder_are_refused(tmp_path, table):
    numbers = range(0, 8, 2)
    for place in ("", "other/"):
        (tmp_path / place).mkdir(exist_ok=True)
        for number in numbers:
            grey(10 + number).save(tmp_path / f"{place}a_{number:04d}.png")
    names_rate = None if table else 10
    if table:
        listed = [f"{place}{video}_{n:04d}.png,{n / 10}" for place in ("", "other/") for video in "ab" for n in numbers]
        (tmp_path / "frames.csv").write_text("\n".join(["file,second", *listed]))

    def clips():
        paths, load = list_frames(tmp_path), LoadClipd("image", SIZE, 4)
        return list(ClipDataset(paths, load, tmp_path, SIZE, names_rate=names_rate))

    made = {row["name"]: values(row["image"]) for row in clips()}
    assert made["a_0006.png"] == [10, 12, 14, 16] == made["other/a_0006.png"], "equal times in two folders"
    for number in numbers:
        grey(200 + number).save(tmp_path / f"b_{number:04d}.png")
    with pytest.raises(BundleInputError, match="frames of two videos in one folder; put each") as raised:
        clips()
    assert all(str(tmp_path / name) in str(raised.value) for name in ("a_0000.png", "b_0000.png"))


@pytest.mark.parametrize(("interval", "rate"), [(0.2, 1.0), (0.0, 5.0), (float("nan"), 5.0)])
def test_an_interval_below_one_frame(interval, rate):
    with pytest.raises(ValueError, match="is less than one frame at mask_rate"):
        interval_in_frames(interval, rate)


def test_masks_are_written_in_the_size_of_the_frames_and_can_be_labels(tmp_path):
    writer, engine = MaskWriter(tmp_path, ["shaft", "jaw"]), Engine(lambda *_: None)
    predicted = torch.zeros(1, 4, 8)
    predicted[0, :2, :4], predicted[0, 2:, 4:] = 1, 2
    image, shape = torch.full((12, 4, 8), 0.5), torch.tensor([48, 64])
    cases = [{"name": "a.mp4", "second": 1.2}, {"name": "b/f.jpg", "second": float("nan")}]
    engine.state.batch = [{**case, "image": image, "shape": shape, "error": ""} for case in cases]
    engine.state.batch += [{"name": "c.png", "second": float("nan"), "image": image, "shape": shape, "error": "broken"}]
    engine.state.output = [{"pred": predicted}] * 3
    writer.note(engine)
    writer.finish()
    for name in ("a.mp4/00001200.png", "b/f.jpg.png"):
        mask = np.asarray(Image.open(tmp_path / "masks" / name))
        assert mask.shape == (48, 64) and mask.dtype == np.uint8
        assert (mask[:24, :32] == 1).all() and (mask[24:, 32:] == 2).all() and not mask[:24, 32:].any()
        over = np.asarray(Image.open((tmp_path / "overlays" / name).with_suffix(".jpg"))).astype(int)
        assert np.abs(over[5:19, 37:59] - 128).max() < 8 and over[5:19, 5:27, 2].min() > 150, "blue over the shaft"
    assert FrameMasks(tmp_path / "masks/a.mp4", range(3)).files() == [(1.2, tmp_path / "masks/a.mp4/00001200.png")]
    with (tmp_path / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["mask"] for row in rows] == ["masks/a.mp4/00001200.png", "masks/b/f.jpg.png", ""]
    assert [float(rows[0][f"share_{name}"]) for name in ("shaft", "jaw")] == [0.25, 0.25]
    assert rows[2]["error"] == "broken" and rows[2]["share_jaw"] == ""


def test_a_folder_of_broken_files_is_one_clear_error(tmp_path):
    (tmp_path / "a.png").write_bytes(b"not a picture")
    load = LoadClipd("image", SIZE, 4)
    (row,) = ClipDataset([str(tmp_path / "a.png")], load, tmp_path, SIZE)
    assert "is damaged or no picture" in row["error"] and row["image"].shape == (12, *SIZE)
    writer, engine = MaskWriter(tmp_path / "out", ["jaw"]), Engine(lambda *_: None)
    engine.state.batch, engine.state.output = [row], [{"pred": torch.zeros(1, *SIZE)}]
    writer.note(engine)
    with pytest.raises(ValueError, match="none of 1 frames could be read; the first:"):
        writer.finish()


def test_a_mask_in_monai_label_lies_over_its_picture(tmp_path):
    """The upper half of a picture that is wider than high; the network's grid has other proportions."""
    from fedmed_label.writers import flat_label, read_width_first, write_png

    grey(9, (90, 60)).save(tmp_path / "a.png")
    load = LoadClipd("image", SIZE, 4)
    case = load({"image": str(tmp_path / "a.png")})
    case["pred"] = torch.zeros(1, *SIZE)
    case["pred"][:, : SIZE[0] // 2] = 2
    case["width_first"] = read_width_first([load], str(tmp_path / "a.png"))
    with Image.open(write_png(flat_label(case, "pred", "image"))) as png:
        mask = np.asarray(png)
    assert mask.shape == (60, 90) and (mask[:30] == 2).all() and not mask[30:].any()
