"""One folder of recordings becomes several sites: by black edges, by a list of clients, or each video cut by time."""

import csv
import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from fedmed.data.prepare.clients import Edges, read_clients, split_by_edge
from fedmed.data.prepare.video_layouts.layout import Recording
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.label_table import read_label_table
from fedmed.data.video.video_store import VideoStore
from fedmed.errors import DataError
from fedmed.files import CHECKOUT
from fedmed.settings.site import load_file
from tests.commands import fedmed

MAIN = fedmed("prepare", "video")
DATA = Path(os.environ.get("FEDMED_DATA") or CHECKOUT.parent / "shared" / "data").expanduser() / "surgery_cholect50"


def movie(folder, name, seed, edge):
    """A video of three seconds with ``edge`` of 64 dark columns, half of them at either side, and its table."""
    for part in ("videos", "labels"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    writer = cv2.VideoWriter(str(folder / "videos" / f"{name}.mp4"), cv2.VideoWriter_fourcc(*"mp4v"), 5, (64, 48))
    for number in range(15):
        frame = np.zeros((48, 64, 3), np.uint8)
        frame[:, edge // 2 : 64 - edge // 2] = 60 + 7 * seed + number
        writer.write(frame)
    writer.release()
    (folder / "labels" / f"{name}.csv").write_text("second,grasper\n0,1\n1,0\n2,1\n")


@pytest.fixture
def edged(tmp_path):
    """Three videos with large, three with intermediate and three with small edges."""
    for seed, (name, edge) in enumerate((f"{e}{n}", w) for e, w in (("l", 24), ("m", 12), ("s", 2)) for n in range(3)):
        movie(tmp_path / "in", name, seed, edge)
    return tmp_path / "in"


def prepare(folder, out, *options):
    return MAIN([str(folder), "--site", "cho", "--out", str(out), "--workers", "1", *map(str, options)])


def listed(path):
    return {name: [Path(e["video"]).name for e in entries] for name, entries in json.loads(path.read_text()).items()}


def test_three_clients_by_black_edges(edged, tmp_path, capsys):
    (edged / "videos" / "broken.mp4").write_bytes(b"no video")
    assert prepare(edged, tmp_path / "out", "--split-by", "black-edge") == 0
    said = capsys.readouterr().out
    assert "Limits thirds of the measured widths: up to " in said and "Videos: 3 large, 3 intermediate, 3 small" in said
    assert "broken.mp4 is at no client" in said
    for place, letter in enumerate("lms", 1):
        lists = listed(tmp_path / "out" / f"cho{place}" / "datalist.json")
        assert sorted(video for names in lists.values() for video in names) == [f"{letter}{n}.mp4" for n in range(3)]
        assert set(lists) == {"training", "validation", "testing"}
        assert load_file(tmp_path / "out" / f"cho{place}" / f"cho{place}.yaml").site == f"cho{place}"
    rows = list(csv.DictReader((tmp_path / "out" / "cho_black_edges.csv").open()))
    assert [row["group"] for row in rows] == ["large"] * 3 + ["intermediate"] * 3 + ["small"] * 3
    assert float(rows[0]["edge_percent"]) == pytest.approx(37.5, abs=1)
    assert "- client: `large black edges; limits" in (tmp_path / "out" / "cho1" / "prepare_report.md").read_text()


def test_limits_that_leave_a_client_without_videos_or_tests(edged, tmp_path, capsys):
    for options, words in (
        (("--edges", 0.5, 0.6), "0 large, 0 intermediate, 9 small; each client needs videos: give other limits"),
        (("--edges", 0.3, 0.1), "--edges 0.3 0.1: give two shares of the width, such as 0.05 0.15"),
        (("--split", 0.5, 0.5, 0), "'cho1' (large black edges; limits thirds of"),
    ):
        assert prepare(edged, tmp_path / "out", "--split-by", "black-edge", *options) == 2
        assert words in capsys.readouterr().err
        assert not list(tmp_path.glob("out/*/datalist.json"))


def test_most_frames_of_a_video_decide():
    assert Edges("a", np.array([0.0, 0.3, 0.3])).group(0.1, 0.2) == 0
    assert Edges("a", np.array([0.1, 0.1, 0.3])).group(0.1, 0.2) == 2  # a limit belongs to what is smaller
    assert Edges("a", np.array([0.15, 0.3])).group(0.1, 0.2) == 0  # a tie
    with pytest.raises(DataError, match="the edges of no video could be measured: .*nothing.mp4"):
        split_by_edge([Recording("nothing.mp4", Path("nothing.mp4"))], "s")


def test_clients_of_a_file(edged, tmp_path, capsys):
    clients = {"a": {"training": ["l0", "m0"], "testing": ["s0"]}, "elsewhere": {"training": ["x"], "testing": ["y"]}}
    (tmp_path / "clients.yaml").write_text(yaml.safe_dump(clients))
    assert prepare(edged, tmp_path / "out", "--clients", tmp_path / "clients.yaml") == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["cho_a"]
    wanted = {"training": ["l0.mp4", "m0.mp4"], "testing": ["s0.mp4"]}
    assert listed(tmp_path / "out" / "cho_a" / "datalist.json") == wanted


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ({"a": {"training": ["one"]}}, "a: has no list 'testing'; a client trains and is tested"),
        ({"a": {"training": ["one"], "testing": ["one"]}}, "the video 'one' is listed twice"),
        ({"a": {"training": ["one"], "testing": ["gone"]}}, "a: the video 'gone' is not in the folder"),
        ({"a": {"training": ["one"], "testing": ["two"]}}, "the video 'two' is there 2 times: hd/two.mp4, sd/two.mp4"),
        ({"a": {"training": ["x"], "testing": ["y"]}}, "the folder has none of its videos, such as 'y'"),
        ({"a": {"train": ["one"]}}, "are not the lists of a client"),
        (["a"], "names no clients"),
        ({"Haus 1": {"training": ["one"], "testing": ["gone"]}}, "'s_Haus 1' is not a site's name"),
    ],
)
def test_a_file_of_clients_that_does_not_fit(tmp_path, clients, words):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(clients))
    result = [Recording(name, Path(name)) for name in ("one.mp4", "hd/two.mp4", "sd/two.mp4")]
    with pytest.raises(DataError, match=words):
        read_clients(tmp_path / "c.yaml", "s", result)


def test_the_clients_of_the_thesis():
    path = CHECKOUT / "research/experiments" / "clients" / "markert_2022.yaml"
    cholec80 = [Recording(name, Path(name)) for name in (f"video{number:02d}.mp4" for number in range(1, 81))]
    heichole = [Recording(name, Path(name)) for name in (f"Videos/Hei-Chole{n}.mp4" for n in range(1, 25))]
    three, two = (read_clients(path, "markert", result) for result in (cholec80, heichole))
    names = ("hei1", "hei2", "cho1", "cho2", "cho3")
    assert [client.site for client in (*two, *three)] == [f"markert_{name}" for name in names]
    assert [len(client.lists) for client in (*two, *three)] == [12, 12, 23, 35, 22]


def frames(folder, video, seconds):
    """Single frames of CholecT50 with a grasper; in the second minute with scissors too."""
    triplets = {second: [[0, tool, *([0] * 12), 1] for tool in ((0,) if second < 70 else (0, 3))] for second in seconds}
    (folder / "labels").mkdir(parents=True, exist_ok=True)
    (folder / "labels" / f"{video}.json").write_text(json.dumps({"fps": 1, "annotations": triplets}))
    (folder / "videos" / video).mkdir(parents=True)
    for second in seconds:
        path = folder / "videos" / video / f"{second:06d}.png"
        cv2.imwrite(str(path), np.full((48, 64, 3), 40 + second % 200, np.uint8))


def test_blocks_of_a_video_in_turn(tmp_path, capsys):
    frames(tmp_path / "in", "VID01", [5, 20, 64, 66, 74, 75, 100, 134, 139, 145, 160])
    frames(tmp_path / "in", "VID02", [5, 20, 68])
    assert prepare(tmp_path / "in", tmp_path / "out", "--each", "--blocks", 60, 10) == 0
    said = capsys.readouterr()
    assert "no frame of 'training' shows the tool 'scissors'" not in said.out  # it does, in the third block
    assert "every frame of 'testing' shows the tool 'scissors'" in said.out
    assert "site 'cho_vid02' is not made: the client 'cho_vid02' has no test list" in said.err
    assert "VID02_testing: no frame lies in its blocks for 'testing'; give shorter ones" in said.err
    site = tmp_path / "out" / "cho_vid01"
    assert listed(site / "datalist.json") == {
        "training": ["VID01_training"], "validation": ["VID01_training"], "testing": ["VID01_testing"]
    }  # fmt: skip
    assert listed(site / "datalist_whole.json") == dict.fromkeys(("training", "validation", "testing"), ["VID01"])
    store = VideoStore(tmp_path / "cache", FrameSettings((24, 32), None))
    for name, seconds in (("training", [5, 20, 64, 145, 160]), ("testing", [75, 100, 134]), (None, 11)):
        part = "VID01" + (f"_{name}" if name else "")
        stored = store.get(site / "prepared" / "videos" / part)
        rows = read_label_table(site / "prepared" / "labels" / f"{part}.csv", None, None).tools_of(stored)
        assert len(rows) == (len(seconds) if name else seconds)
        assert not name or (stored.times + stored.start).tolist() == seconds


def test_only_single_frames_are_cut(edged, tmp_path, capsys):
    assert prepare(edged, tmp_path / "out", "--blocks", 60, 10) == 2
    assert "only folders of single frames can be cut into blocks" in capsys.readouterr().err
    assert prepare(edged, tmp_path / "out", "--blocks", 0, 10) == 2
    assert "--blocks 0 10: give the seconds of a block" in capsys.readouterr().err


@pytest.mark.skipif(not DATA.is_dir(), reason="the real frames are not in ../shared/data")
def test_real_frames_in_blocks(tmp_path, capsys):
    assert prepare(DATA, tmp_path, "--each", "--blocks", 60, 10) == 0
    counts = [[len(list(site.glob(f"prepared/videos/*_{name}/*.jpg"))) for site in sorted(tmp_path.iterdir())]
              for name in ("training", "testing")]  # fmt: skip
    assert counts == [[95, 94, 155, 44], [121, 45, 216, 61]]
    assert "no frame of 'training' shows the tool 'suction_irrigation'" in capsys.readouterr().out
