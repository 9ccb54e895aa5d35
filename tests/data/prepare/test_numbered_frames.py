"""Folders of frames without any table: their names and a rate say when frames are shown."""

import json

import pytest

from fedmed.data.prepare.video_inspect import WantedVideos
from fedmed.data.prepare.video_site import prepare_video_site
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.video_store import VideoStore
from fedmed.errors import DataError
from tests.commands import fedmed

MAIN = fedmed("prepare", "video")


@pytest.fixture
def frames(tmp_path, png):
    """Write pictures of these names into a folder, each with another content."""

    def write(folder, *names):
        for number, name in enumerate(names):
            png(tmp_path / "in" / folder / name, [len(folder) + 16, 10 * number + 20])
        return tmp_path / "in"

    return write


@pytest.fixture
def prepare(tmp_path):
    """Make a site of ``tmp_path / "in"``: report, lists of the datalist, refusals by name."""

    def prepare(names_rate=1.0, **wanted):
        settings = FrameSettings((224, 224), names_rate=names_rate)
        prepared = prepare_video_site(tmp_path / "in", tmp_path / "out", "s", WantedVideos(settings=settings, **wanted))
        lists = json.loads((tmp_path / "out" / "datalist.json").read_text())
        return prepared, lists, {case.case: "; ".join(case.faults) for case in prepared.cases if case.faults}

    return prepare


def times(video, cache):
    return VideoStore(cache, FrameSettings((24, 32), None)).get(video).times.tolist()


def test_folders_of_frames_become_a_site_without_labels(frames, tmp_path):
    folder = frames("videos/OP Müller 1", "Bild 9.PNG", "Bild 10.png", "Bild 12.JPG", "Bild 20.jpeg")
    frames("videos/b", "000050.png", "000075.png")
    for junk in ("Thumbs.db", ".DS_Store", "._Bild 9.png"):
        (folder / "videos" / "OP Müller 1" / junk).write_bytes(b"no picture")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    command = [str(folder), "--site", "s", "--out", str(tmp_path / "out"), "--unlabelled", "--names-rate", "25"]
    assert MAIN([*command, "--workers", "1"]) == 0
    lists = json.loads((tmp_path / "out" / "datalist.json").read_text())
    videos = {entry["patient"]: tmp_path / "out" / entry["video"] for entry in lists.pop("unlabeled")}
    assert not lists and sorted(videos) == ["OP Müller 1", "b"]
    assert times(videos["OP Müller 1"], tmp_path / "cache") == pytest.approx([0, 1 / 25, 3 / 25, 11 / 25])
    assert times(videos["b"], tmp_path / "cache") == [0, 1]
    assert "numbers a second in the names of frames: `25.0`" in (tmp_path / "out" / "prepare_report.md").read_text()
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_folder_that_is_one_video_has_its_own_name(frames, prepare):
    frames(".", "1.png", "2.png")
    assert prepare()[1] == {"unlabeled": [{"video": "prepared/videos/in", "patient": "in"}]}


def test_without_a_rate_it_is_said_what_to_type(frames, tmp_path, capsys):
    folder = frames("a", "1.png", "2.png")
    command = [str(folder), "--site", "s", "--out", str(tmp_path / "out"), "--unlabelled"]
    assert MAIN(command) != 0 and not (tmp_path / "out").exists()
    said = capsys.readouterr().err
    assert "a: nothing says when its frames are shown; give --names-rate (25 if the numbers" in said
    assert MAIN([*command, "--names-rate", "0"]) != 0
    assert "names_rate is 0.0; give numbers a second above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["1.png", "cover.jpg"], "no number in the name of cover.jpg tells its time; write frames.csv .* or move it"),
        (["1.jpg", "1.png", "2.png"], "the last number in the names of 1.jpg and 1.png is the same; keep one"),
        (["001_480p.png", "002_480p.png"], "the last number in the names of 001_480p.png and 002_480p.png is the same"),
        (["1.png", "2.png", "3700.png"], "at --names-rate 1 more than an hour lies between 2.png and 3700.png; give"),
        ([], "has no frames; put pictures into it, or remove it"),
    ],
)
def test_names_that_tell_no_times_are_refused(frames, prepare, names, fault):
    folder = frames("good", "1.png", "2.png")
    frames("bad", *names)
    (folder / "bad").mkdir(exist_ok=True)
    _, lists, refused = prepare()
    assert [entry["patient"] for entry in lists["unlabeled"]] == ["good"]
    with pytest.raises(DataError, match=f"^{fault}"):
        raise DataError(refused["bad"])


def test_long_gaps_single_frames_and_two_sizes_are_taken(frames, prepare, png):
    folder = frames("gap", "1.png", "2.png", "90.png")
    frames("one", "1.png")
    frames("sizes", "1.png", "2.png")
    png(folder / "sizes" / "3.png", [99], (24, 32))
    prepared, lists, refused = prepare()
    assert len(lists["unlabeled"]) == 3 and not refused
    notes = {case.case: "; ".join(case.notes) for case in prepared.cases}
    assert "at --names-rate 1 more than 60 s lie between two of its frames" in notes["gap"]
    assert "the size of the frames changes midway" in notes["sizes"] and "60 s" not in notes["one"] + notes["sizes"]
    assert not any("60 s" in "; ".join(case.notes) for case in prepare(25)[0].cases)


def test_a_table_of_times_comes_first_and_masks_are_not_videos(frames, prepare, tmp_path):
    folder = frames("a/pictures", "7.png", "8.png")
    (folder / "a" / "frames.csv").write_text("file,second\npictures/7.png,0\npictures/8.png,5\n")
    frames("b", "4.png", "5.png")
    for masks in ("masks/none", "semantic_masks/none", "none_masks"):
        frames(masks, "1.png", "2.png")
    prepared, _, refused = prepare()
    assert not refused and [case.case for case in prepared.cases] == ["a", "b"]
    assert times(tmp_path / "out/prepared/videos/a", tmp_path / "cache") == [0, 5]


def test_labels_count_at_the_seconds_of_the_names(frames, prepare):
    folder = frames("b", "100.png", "125.png")
    (folder / "labels").mkdir()
    (folder / "labels" / "b.csv").write_text("second,phase\n4,first\n5,second\n")
    assert list(prepare(25)[1]) == ["training"]
    assert list(prepare(25, ignore=True)[1]) == ["unlabeled"]


def test_a_video_of_cholect50_without_its_json_is_unlabelled(frames, prepare):
    triplets = {str(frame): [[17, 2, *[1.0] * 12, frame - 1]] for frame in (1, 2)}
    folder = frames("videos/VID01", "000001.png", "000002.png")
    frames("videos/VID002", "000001.png", "000002.png")
    (folder / "labels").mkdir()
    (folder / "labels" / "VID01.json").write_text(json.dumps({"fps": 1, "annotations": triplets}))
    assert "VID002.json is missing, and without labels nothing says when" in prepare(None)[2]["VID002"]
    prepared, lists, refused = prepare(1)
    assert not refused and {name: [one["patient"] for one in listed] for name, listed in lists.items()} == {
        "training": ["VID01"], "unlabeled": ["VID002"]
    }  # fmt: skip
    assert any(
        "neither labels nor masks were found" in note for note in prepared.cases[0].notes + prepared.cases[1].notes
    )


def test_names_that_hold_hours_minutes_and_seconds_need_no_rate(frames, prepare, tmp_path):
    frames("op", "Bild_00h01m05s.png", "Bild_00h00m58s.png", "Bild_01h00m00,5s.png")
    frames("dated", "2024-03-14.png", "00h00m01s.png")
    _, lists, refused = prepare(None)
    (entry,) = lists["unlabeled"]
    assert times(tmp_path / "out" / entry["video"], tmp_path / "cache") == pytest.approx([0, 7, 3542.5])
    assert "name them by their time as in 00h12m30s.jpg" in refused["dated"]
