"""Folders with masks of instruments: EndoVis 2017 with borders and its test set, single pictures, tables of masks."""

import json

import cv2
import numpy as np
import pytest

from fedmed.data.prepare.video_inspect import WantedVideos
from fedmed.data.prepare.video_site import find_recordings, prepare_video_site
from fedmed.data.video.clips import ClipRule
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.listed_videos import MaskedVideos, SyntheticImages, masked_frames
from fedmed.errors import DataError

CLASSES = ["shaft", "wrist", "jaw"]
RULE = ClipRule("history", 4, interval=0.2)


@pytest.fixture
def prepare(tmp_path):
    """Return a function that makes a site, all of it for training, and gives its entries and refusals by name."""

    def prepare(layout=None):
        prepared = prepare_video_site(tmp_path / "in", tmp_path / "out", "s", WantedVideos(layout), fractions=(1, 0, 0))
        lists = json.loads((tmp_path / "out" / "datalist.json").read_text())
        refused = {case.case: "; ".join(case.faults) for case in prepared.cases if case.faults}
        return lists.get("training", []), refused

    return prepare


def opened(tmp_path, loader=MaskedVideos, **settings):
    chosen = FrameSettings(**{"size": (24, 32), "rate": 5, **settings})
    return loader(tmp_path / "out", tmp_path / "out" / "datalist.json", "training", CLASSES, chosen, tmp_path / "cache")


def test_black_borders_of_endovis2017_are_cut_off_frames_and_masks(prepare, tmp_path):
    folder = tmp_path / "in" / "instrument_dataset_1"
    frame, mask = np.zeros((54, 96, 3), np.uint8), np.zeros((54, 96), np.uint8)
    frame[3:51, 16:80], mask[3:51, 16:48] = 90, 10
    for number in range(2):
        for place in ("left_frames", "ground_truth/Left_Needle_Driver_labels"):
            (folder / place).mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / f"left_frames/frame{number:03d}.png"), frame + number)
        cv2.imwrite(str(folder / f"ground_truth/Left_Needle_Driver_labels/frame{number:03d}.png"), mask)
    assert len(prepare()[0]) == 1
    videos = opened(tmp_path, crop=True, rate=2)
    (stored,), (files,) = videos.videos, videos.files
    cut = videos.masks[0].read(files[1], stored)
    assert stored.frames[0][2:-2, 2:-2].min() > 80
    assert np.array_equal(np.unique(cut[:, :16]), [1]) and not cut[:, 16:].any()


def test_values_of_the_test_set_of_endovis2017_are_others(prepare, tmp_path, png):
    folder = tmp_path / "in" / "instrument_dataset_1"
    png(folder / "ground_truth" / "PartsSegmentation" / "frame225.png", [30, 100, 255, 200])
    png(folder / "ground_truth" / "TypeSegmentation" / "frame225.png", [7])
    png(folder / "left_frames" / "frame225.png", [40])
    (entry,), _ = prepare()
    (file,) = (tmp_path / "out" / entry["masks"]).iterdir()
    assert cv2.imread(str(file), 0)[:6, 0].tolist() == [1, 2, 3, 0, 0, 0]


def test_single_pictures_with_a_table_of_values(prepare, tmp_path, png):
    """As Sisvse lays them out: semantic_masks, one folder a kind; a picture without a mask is left out."""
    for number in range(3):
        png(tmp_path / "in" / "images" / "manual_syn" / f"{number}.png", [50 + number, 60])
    for number, values in ((0, [4, 5, 6]), (2, [0, 5, 9])):
        png(tmp_path / "in" / "semantic_masks" / "manual_syn" / f"{number}.png", values)
    png(tmp_path / "in" / "images" / "real" / "a.png", [70])
    with pytest.raises(DataError, match=r"manual_syn(.|\n)*write mask_values\.csv beside images"):
        prepare()
    parts = "0,background\n4,shaft\n5,wrist\n6,jaw\n9,background\n"
    (tmp_path / "in" / "mask_values.csv").write_text(f"value,part\n{parts}")
    entries, refused = prepare()
    assert len(entries) == 1 and "none of its 1 pictures has a mask" in refused["real"]
    images = opened(tmp_path, SyntheticImages)
    clips = masked_frames(images, RULE)
    assert clips.rows.tolist() == [[0] * 4, [1] * 4] and images.videos[0].frames[1].max() > 45
    read = images.masks[0].read(images.files[0][0], images.videos[0])
    assert read.shape == (24, 32) and set(np.unique(read)) <= {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("value,name\n1,shaft", "use value,part"),
        ("value,part\n1,handle", "and background, shaft, wrist, jaw"),
        ("value,part\n1,shaft\n1,jaw", "use each value of 0 to 255 once"),
        ("value,part\n300,shaft", "use each value of 0 to 255 once"),
        ("value,part\nx,shaft", "is not a whole number"),
    ],
)
def test_mistakes_in_the_table_of_values(tmp_path, png, lines, words):
    png(tmp_path / "images" / "a.png", [1])
    png(tmp_path / "masks" / "a.png", [1])
    (tmp_path / "mask_values.csv").write_text(lines)
    with pytest.raises(DataError, match=words):
        find_recordings(tmp_path, WantedVideos())


@pytest.mark.parametrize(("header", "rows"), [("second,file", "0.4,m/x.png"), ("file,frame", "m/x.png,2")])
def test_a_table_of_masks(prepare, tmp_path, movie, png, header, rows):
    movie(tmp_path / "in" / "videos" / "a.mp4", seconds=2, rate=5)
    png(tmp_path / "in" / "masks" / "m" / "x.png", [1, 2, 3])
    (tmp_path / "in" / "masks" / "a.csv").write_text(f"{header}\n{rows}\n")
    (entry,), refused = prepare()
    assert not refused and [f.name for f in (tmp_path / "out" / entry["masks"]).iterdir()] == ["00000400.png"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("time,file\n0,m/x.png\n", "use 'file', and 'second' or 'frame'"),
        ("second,file\nsoon,m/x.png\n", "second is 'soon'; write a number"),
        ("second,file\n0,../x.png\n", "is not a path below the table's folder"),
        ("second,file\n0,m/none.png\n", "the mask cannot be read"),
    ],
)
def test_mistakes_in_a_table_of_masks(prepare, tmp_path, movie, png, content, words):
    for name in ("a", "bb"):
        movie(tmp_path / "in" / "videos" / f"{name}.mp4", len(name), 2, 5)
        png(tmp_path / "in" / "masks" / "bb" / "00000000.png", [1])
    png(tmp_path / "in" / "masks" / "m" / "x.png", [1])
    (tmp_path / "in" / "masks" / "a.csv").write_text(content)
    entries, refused = prepare()
    assert [entry["patient"] for entry in entries] == ["bb"] and words in refused["a.mp4"]
