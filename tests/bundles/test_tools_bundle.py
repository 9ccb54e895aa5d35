"""The bundle for tools in frames of video: complete, trains and scores alone, and infers frames without FedMed."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from ignite.engine import Events
from PIL import Image, ImageColor
from surgical_tools import timeline
from surgical_tools.encoders import FrameEncoder, MeanAndMax
from surgical_tools.errors import BundleInputError
from surgical_tools.picture_times import picture_times
from surgical_tools.videos import frames_at

from fedmed.bundles.bundle_parser import parsed
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.stored_video import Extraction
from fedmed.errors import DataError
from fedmed.training.trainer import one_cycle
from tests.bundles.one_bundle import OneBundle
from tests.bundles.without_fedmed import run_without_fedmed

HERE = OneBundle("surgical_tool_classification")
BUNDLE, configs, parse = HERE.root, HERE.configs, HERE.parse
SMALL = {"image_size": [24, 32], "batch_size": 16, "max_epochs": 1}


def test_the_published_values():
    """Markert 2022; all that is ours is off."""
    parser = parse("train")
    values = {"image_size": [135, 240], "frame_rate": 1.0, "batch_size": 128, "learning_rate": 1e-3, "max_epochs": 50,
              "weight_decay": 0.0, "weighted": True, "weight_cap": 1000.0}  # fmt: skip
    assert {key: parser[key] for key in values} == values and parse("train", "vgg13")["batch_size"] == 16
    settings = ("flip_prob", "degrees", "zoom", "shift", "brightness", "contrast", "saturation", "hue")
    assert not any(parser[key] for key in settings) and all(parse("train", "demo")[key] for key in settings)
    parser["network_def"] = {"_target_": "torch.nn.Linear", "in_features": 2, "out_features": 6}
    (group,) = parsed(parser, "optimizer").param_groups
    assert group["lr"] == 1e-3 and not group["momentum"] and not group["weight_decay"] and not group["nesterov"]
    alone = parse("train", "adamw")
    assert (alone["learning_rate"], alone["optimizer"]["_target_"]) == (1e-4, "torch.optim.AdamW")


def test_a_stand_alone_training_is_one_cycle(facts):
    parser = parse("train", "demo", **facts | {"batch_size": 2})
    schedule, rates = parser["train#handlers"][0], []
    assert schedule["lr_scheduler"]["total_steps"] == "$@epoch_length * @max_epochs"
    parser["train#handlers"] = [schedule]
    trainer, optimizer = parsed(parser, "train#trainer"), parsed(parser, "optimizer")
    trainer.add_event_handler(Events.ITERATION_STARTED, lambda _: rates.append(optimizer.param_groups[0]["lr"]))
    trainer.run()
    steps = trainer.state.iteration
    assert steps > 5 and rates == pytest.approx(cycle_of(steps))


def cycle_of(steps):
    """Learning rates of one uninterrupted cycle."""
    optimizer, rates = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0), []
    schedule = one_cycle(optimizer, 4e-3, steps)
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def test_mean_and_largest_value_of_each_map():
    maps = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]], [[-1.0, -2.0], [-3.0, -6.0]]]])
    assert MeanAndMax()(maps).tolist() == [[3.0, -3.0, 6.0, -1.0]]
    with pytest.raises(ValueError, match="'median'; use 'mean' or 'mean_max'"):
        FrameEncoder(pooling="median")


def test_positive_weights_are_those_of_the_sites_own_frames(facts):
    parser = parse("train", "demo", **facts)
    videos = parsed(parser, "train#videos")
    shown = sum(labels[video.kept].sum(0) for video, labels in zip(videos.videos, videos.labels, strict=True))
    n = len(parsed(parser, "train#data"))
    assert n == sum(int(video.kept.sum()) for video in videos.videos)
    expected = ((n - shown.double()) / shown.clamp(min=1)).clamp(max=parser["weight_cap"])
    assert parsed(parser, "loss").pos_weight.tolist() == pytest.approx(expected.tolist())
    assert parsed(parse("train", "demo", **facts, weighted=False), "loss").pos_weight is None


def test_train_evaluate_and_infer(facts, tmp_path):
    """Stand-alone: an epoch with validation, the scores of the testing list, and frames in a process without FedMed."""
    model = HERE.train(**facts)
    (score,) = HERE.test_scores("f1", **facts)
    assert 0 <= score <= 1
    (tmp_path / "in").mkdir()
    Image.new("RGB", (64, 48), (120, 40, 30)).save(tmp_path / "in/red.png")
    (tmp_path / "in/broken.png").write_bytes(b"no picture")
    (tmp_path / "in/empty.mp4").write_bytes(b"no video")
    shutil.copy(a_video(facts), tmp_path / "in/operation.mp4")
    files = str(configs("inference", "demo")).replace(" ", "")
    line = ["--config_file", files, "--bundle_root", BUNDLE, "--dataset_dir", tmp_path / "in"]
    line += ["--output_dir", tmp_path / "out", "--model_path", model, "--image_size", "[24,32]"]
    run_without_fedmed(tmp_path, *line)
    empty, broken, red, *frames = json.loads((tmp_path / "out/predictions.json").read_text())
    assert broken["predicted"] is None and "broken.png is damaged or no picture" in broken["error"]
    assert empty["predicted"] is None and "empty.mp4 is damaged or no video" in empty["error"]
    assert set(red["probabilities"]) == set(parse("train")["classes"])
    assert red["predicted"] == [name for name, p in red["probabilities"].items() if p >= 0.5]
    assert [row["second"] for row in frames] == list(range(len(frames))) and len(frames) > 10 and red["second"] is None
    drawn = {path.relative_to(tmp_path / "out/timelines").as_posix() for path in (tmp_path / "out").rglob("*.png")}
    assert drawn == {"frames.png", "operation.mp4.png", "empty.mp4.png"}
    with (tmp_path / "out/predictions.csv").open() as file:
        assert [row["second"] for row in csv.DictReader(file)][3:5] == ["0.000", "1.000"]


def a_video(facts):
    datalist = json.loads((Path(facts["dataset_dir"]) / "datalist.json").read_text())
    return Path(facts["dataset_dir"]) / datalist["testing"][0]["video"]


@pytest.mark.parametrize("rate", [1.0, 2.5])
def test_frames_of_a_video_are_those_of_training(facts, rate):
    expected = [frame.copy() for frame in Extraction(a_video(facts), FrameSettings((48, 64), rate))]
    result = list(frames_at(a_video(facts), rate))
    assert [second for second, _ in result] == pytest.approx([k / rate for k in range(len(expected))])
    for frame, (_, picture) in zip(expected, result, strict=True):
        assert np.abs(frame.astype(int) - np.asarray(picture.resize((64, 48)), dtype=int)).mean() < 2


@pytest.mark.parametrize("rate", [0, -1.0, "1", float("nan")])
def test_a_wrong_rate(facts, rate):
    with pytest.raises(ValueError, match=r"frame_rate \(mask_rate, .* is .*; give frames a second above 0, such as 1"):
        next(frames_at(a_video(facts), rate))


def test_frames_of_two_videos_in_one_folder_are_refused():
    apart = picture_times(["a/f_1.png", "b/f_1.png"], "unused", 4)
    assert apart == {"a/f_1.png": 0.25, "b/f_1.png": 0.25}, "of two folders"
    with pytest.raises(BundleInputError, match="a/f_1.png and a/g_1.png are both of second 0.25.*of its own"):
        picture_times(["a/f_1.png", "a/f_2.png", "a/g_1.png"], "unused", 4)


def test_a_timeline_shows_each_call(tmp_path):
    """A single frame of ten thousand is seen, and one that could not be read leaves a gap."""
    rows = [[0.9 if n == 5000 else 0.1, 0.2] if n > 100 else None for n in range(10_000)]
    timeline.draw_timeline(tmp_path / "b.png", "x", ["clipper", "bag"], rows, 0.5, range(len(rows)))
    picture = np.asarray(Image.open(tmp_path / "b.png"))
    bars = picture[timeline.TOP + 10, timeline.LEFT :]
    orange = np.flatnonzero((bars == ImageColor.getrgb(timeline.SEEN)).all(1))
    assert orange.tolist() == [5000 * timeline.WIDE // 10_000]
    foot = picture[timeline.TOP + timeline.ROW - 1, timeline.LEFT : timeline.LEFT + timeline.WIDE]
    assert (foot[:11] == ImageColor.getrgb(timeline.PANEL)).all()
    assert (foot[30] == ImageColor.getrgb(timeline.QUIET)).all()


def test_a_table_without_one_of_the_tools_is_one_clear_error(facts):
    parser = parse("train", "demo", **facts, classes=["grasper", "stapler"])
    with pytest.raises(DataError, match="the tool 'clipper' is unknown; use grasper, stapler"):
        parsed(parser, "train#videos")
