"""Input of training on tools: frames with labels, and one clear error for a table that does not fit."""

import json

import pytest

from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.listed_videos import load_labelled_videos, shown_frames
from fedmed.errors import DataError

TOOLS = ("grasper", "clipper")
ROWS = ["0,1,0", "1,0,0", "2,1,1"]  # videos are of three seconds


@pytest.fixture
def load(write_video, tmp_path):
    """Return a function: tables of the videos a, b, … and settings -> what training reads."""

    def load(*tables, drop=(), frames=75, **changes):
        entries = []
        for name, table in zip("abc", tables, strict=False):
            write_video(f"{name}.mp4", frames)
            entries.append({"video": f"{name}.mp4", "labels": f"{name}.csv"})
            if table is not None:
                (tmp_path / f"{name}.csv").write_text("\n".join(["second,grasper,clipper", *table, ""]))
        (tmp_path / "datalist.json").write_text(json.dumps({"training": entries}))
        settings = FrameSettings((24, 32), rate=1, drop=drop)
        said = {"tools": TOOLS, **changes}
        where = (tmp_path, tmp_path / "datalist.json", "training")
        return load_labelled_videos(*where, settings, tmp_path / "cache", **said)

    return load


def test_labels_of_each_frame_in_the_order_of_the_classes(load):
    assert [labels.tolist() for labels in load(ROWS).labels] == [[[1, 0], [0, 0], [1, 1]]]
    prepared = load(ROWS, ROWS[:1] + ["1,1,0", "2,0,0"], tools=TOOLS[::-1])
    assert [labels.tolist() for labels in prepared.labels] == [[[0, 1], [0, 0], [1, 1]], [[0, 1], [0, 1], [0, 0]]]
    assert shown_frames(prepared) == [1, 4]


def test_white_frames_count_neither_as_positive_nor_as_sample(load, frame):
    """So weights of positives are of what is trained on."""
    film = [frame(number) for number in range(25)] + [frame(0) * 0 + 255] * 25 + [frame(number) for number in range(25)]
    prepared = load(["0,1,0", "1,1,1", "2,0,1"], drop=("white",), frames=film)
    assert prepared.videos[0].kept.tolist() == [True, False, True] and shown_frames(prepared) == [1, 1]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, "entry 1 of 'training': the labels .*b.csv does not exist"),
        ([*ROWS, *(f"{second},0,0" for second in range(3, 9))], "b.csv: is longer than its video"),
        (["0,1,0", "1,0.5,0", "2,1,1"], "b.csv: line 3: 'grasper' is '0.5'"),
    ],
)
def test_a_table_that_does_not_fit_is_one_clear_error(load, table, words):
    with pytest.raises(DataError, match=f"(?s){words}"):
        load(ROWS, table)


def test_an_unknown_tool_is_refused_before_a_video_is_prepared(load, tmp_path):
    with pytest.raises(DataError, match="a.csv: line 1: the tool 'clipper' is unknown; use grasper"):
        load(ROWS, tools=("grasper",))
    assert not list(tmp_path.glob("cache/**/*.*"))


@pytest.mark.parametrize("named", [{"tools": ()}, {"phases": ("first",)}], ids=["neither", "both"])
def test_either_tools_or_phases(load, named):
    with pytest.raises(DataError, match="name either 'tools' or 'phases'"):
        load(ROWS, **named)
