"""Inference of the bundle for phases: without FedMed, on videos and folders of frames; tables and ribbons."""

import csv
import gc
import json
import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from PIL import Image, ImageColor
from surgical_phase import ribbon
from surgical_phase import time_axis as axis
from surgical_phase.errors import BundleInputError
from surgical_phase.frame_dataset import FrameDataset
from surgical_phase.picture_times import picture_times

from fedmed.bundles.infer import run_inference
from fedmed.reports.viewed_video import read_predictions
from fedmed_demo import demo_site
from tests.bundles.one_bundle import OneBundle
from tests.bundles.without_fedmed import run_without_fedmed

HERE = OneBundle("surgical_phase_classification")
BUNDLE, CONFIGS = HERE.root, HERE.configs("inference", "demo")
PHASES = ["preparation", "hepatocystic_triangle_dissection", "clipping_and_cutting", "gallbladder_dissection",
          "gallbladder_packaging", "cleaning_and_coagulation"]  # fmt: skip
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@pytest.fixture(scope="module")
def video(fedmed_home):
    """An operation of a tiny site."""
    root = demo_site("lap_phases_tiny", "lap_harbor", fedmed_home)
    return root / json.loads((root / "datalist.json").read_text())["testing"][0]["video"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Weights that were never trained."""
    torch.manual_seed(0)
    parser = ConfigParser()
    parser.read_config(CONFIGS)
    path = tmp_path_factory.mktemp("model") / "model.pt"
    torch.save(parser.get_parsed_content("network_def").state_dict(), path)
    return path


def test_videos_and_folders_of_frames_without_fedmed(video, model, tmp_path):
    inputs = tmp_path / "in"
    inputs.mkdir()
    a_folder_of_frames(inputs / "second")
    (inputs / "empty.mp4").write_bytes(b"no video")
    shutil.copy(video, inputs / "operation.mp4")
    rows = {}
    for row in infer(model, inputs, tmp_path / "out"):
        rows.setdefault(row["image"], []).append(row)
    assert list(rows) == ["empty.mp4", "operation.mp4", *(f"second/{n}.png" for n in (2, 10, 9))]
    assert rows["empty.mp4"][0]["predicted"] is None and "is damaged or no video" in rows["empty.mp4"][0]["error"]
    assert rows["second/9.png"][0]["predicted"] is None and "9.png is damaged" in rows["second/9.png"][0]["error"]
    assert [rows[f"second/{n}.png"][0]["second"] for n in (2, 10, 9)] == [0.5, 1.0, 7.0]
    video = rows["operation.mp4"]
    assert [row["second"] for row in video] == list(range(len(video))) and len(video) > 10
    for row in video:
        assert list(row["probabilities"]) == PHASES and sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-5)
        assert row["predicted"] == max(row["probabilities"], key=row["probabilities"].get)
    drawn = {path.relative_to(tmp_path / "out/ribbons").as_posix() for path in (tmp_path / "out").rglob("*.png")}
    assert drawn == {"empty.mp4.png", "operation.mp4.png", "second.png"}


def test_a_table_of_one_video_can_be_viewed(video, model, tmp_path):
    """The video alone; `fedmed view video` reads what was written, phase by phase."""
    places = {"dataset_dir": str(video), "output_dir": str(tmp_path / "out"), "image_size": [24, 32]}
    run_inference(BUNDLE, map(Path, CONFIGS), {**places, "model_path": str(model), "device": "cpu"})
    result = rows_in(tmp_path / "out")
    with (tmp_path / "out/predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["image", "second", "phase", *(f"p_{name}" for name in PHASES), "error"]
    assert [(row["phase"], row["second"]) for row in rows[:2]] == [(result[0]["predicted"], "0.000"),
                                                                  (result[1]["predicted"], "1.000")]  # fmt: skip
    ribbon = read_predictions(tmp_path / "out/predictions.csv")
    assert [ribbon.at(row["second"]) for row in result] == [[row["predicted"]] for row in result]


@pytest.fixture
def usual_collections():
    """Collect garbage as often as Python does by itself; the other tests collect it seldom."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("usual_collections")
@pytest.mark.skipif(not CLEAR.exists(), reason="needs Linux to tell how much memory was held")
def test_memory_does_not_grow_with_the_length_of_a_video(model, tmp_path):
    """360 frames need hardly more than 40: what is kept of a frame is its probabilities, and not its 110 kB."""

    def peak(frames, folder):
        path = tmp_path / folder / "film.mp4"
        path.parent.mkdir()
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), 10, (64, 48))
        for number in range(frames):
            writer.write(np.full((48, 64, 3), number % 200, np.uint8))
        writer.release()
        places = {"dataset_dir": str(path), "output_dir": str(tmp_path / folder / "out"), "model_path": str(model)}
        CLEAR.write_text("5")  # the peak counts from here
        run_inference(
            BUNDLE, map(Path, CONFIGS), {**places, "device": "cpu", "frame_rate": 10.0, "image_size": [96, 96]}
        )
        assert len(rows_in(tmp_path / folder / "out")) == frames
        return int(re.search(r"VmHWM:\s+(\d+)", STATUS.read_text()).group(1)) / 1024

    peak(8, "first")  # what is imported on first use is not counted
    short = peak(40, "short")
    assert peak(360, "long") - short < 25, "MB; all frames are 40"


def infer(model, inputs, out):
    """Rows that inference in a process without FedMed wrote."""
    files = str(CONFIGS).replace(" ", "")
    values = {"bundle_root": BUNDLE, "dataset_dir": inputs, "output_dir": out, "model_path": model}
    line = [text for key, value in values.items() for text in (f"--{key}", value)]
    run_without_fedmed(out.parent, "--config_file", files, *line)
    return rows_in(out)


def rows_in(out):
    return json.loads((out / "predictions.json").read_text())


def a_folder_of_frames(folder):
    """Three pictures, of which one is damaged; a table tells their times, not in the order of their names."""
    folder.mkdir()
    for n in (10, 2):
        Image.new("RGB", (64, 48), (12 * n, 40, 30)).save(folder / f"{n}.png")
    (folder / "9.png").write_bytes(b"no picture")
    (folder / "frames.csv").write_text("file,second\n10.png,1\n2.png,0.5\n9.png,7\n")
    return folder


def test_a_ribbon_shows_the_phase_of_each_time(tmp_path):
    """Ten frames, of which the fourth could not be read; the sixth lasts no longer than others before a gap."""
    rows = [[0.8, 0.2]] * 3 + [None] + [[0.25, 0.75]] * 6
    seconds = [0, 1, 2, 3, 4, 5, 16, 17, 18, 19]
    ribbon.draw_ribbon(tmp_path / "x.png", "x", ["first", "second_one"], rows, seconds)
    picture = np.asarray(Image.open(tmp_path / "x.png"))
    each, first, second = axis.WIDE // 20, *map(ImageColor.getrgb, ribbon.COLOURS[:2])
    band = picture[axis.TOP + 5, ribbon.LEFT : ribbon.LEFT + axis.WIDE][each // 2 :: each]
    white = ImageColor.getrgb(axis.PAPER)
    assert [tuple(pixel) for pixel in band] == [first] * 3 + [white] + [second] * 2 + [white] * 10 + [second] * 4
    bottom = axis.TOP + ribbon.BAND + ribbon.GAP + ribbon.ROW
    for row, (share, colour) in enumerate([(0.25, axis.QUIET), (0.75, ribbon.COLOURS[1])]):
        column = picture[: bottom + row * (ribbon.ROW + ribbon.GAP), ribbon.LEFT + each * 18][-ribbon.ROW :]
        drawn = (column == ImageColor.getrgb(colour)).all(axis=1)
        assert drawn.sum() == pytest.approx(share * ribbon.ROW, abs=1) and drawn[-1] and not drawn[0]


@pytest.mark.parametrize(
    ("seconds", "spans"),
    [
        ([None] * 4, [(0, 300), (300, 600), (600, 900), (900, 1200)]),
        ([0.0, 1.0, None, 3.0, 4.0], [(0, 240), (240, 480), (0, 0), (720, 960), (960, 1200)]),
        ([5.0], [(0, 1200)]),
        ([2.0, 2.0, 2.0], [(0, 1), (0, 1), (0, 1200)]),
    ],
)
def test_where_frames_lie_along_time(seconds, spans):
    assert [(span.start, span.stop) for span in axis.TimeAxis(seconds).spans] == spans


def test_times_of_pictures_are_those_of_the_table_or_of_their_names(tmp_path):
    folder = a_folder_of_frames(tmp_path / "a")
    paths = [str(folder / name) for name in ("10.png", "2.png", "11.png")]
    assert picture_times(paths, tmp_path) == {paths[0]: 1.0, paths[1]: 0.5}
    (tmp_path / "a/frames.csv").unlink()
    assert picture_times(paths, tmp_path) == {} and list(picture_times(paths, tmp_path, 4).values()) == [2.5, 0.5, 2.75]
    with pytest.raises(ValueError, match="b.png: no number in its name tells its time; write frames.csv"):
        picture_times(["b.png"], tmp_path, 4)
    with pytest.raises(ValueError, match="names_rate is 0; give the numbers in the names a second"):
        picture_times(paths, tmp_path, 0)
    for text, words in (
        ("file\n2.png\n", "needs the columns 'file' and 'second'"),
        ("file,second\n2.png,x\n", "line 2"),
    ):
        (tmp_path / "frames.csv").write_text(text)
        with pytest.raises(ValueError, match=words):
            picture_times(paths, tmp_path)


def test_frames_of_two_videos_in_one_folder_are_refused(tmp_path):
    for name in ("a_1", "b_1", "b_2"):
        Image.new("RGB", (64, 48)).save(tmp_path / f"{name}.png")
    paths = [str(path) for path in sorted(tmp_path.glob("*.png"))]
    for names_rate in (25, None):
        with pytest.raises(BundleInputError, match=r"a_1.png and .*b_1.png are both of second .*of its own"):
            FrameDataset(paths, None, tmp_path, (32, 40), names_rate=names_rate)
        (tmp_path / "frames.csv").write_text("file,second\na_1.png,3\nb_1.png,3\nb_2.png,4\n")
    (tmp_path / "frames.csv").unlink()
    assert FrameDataset(paths, None, tmp_path, (32, 40)).times == {}, "no times, no history"
