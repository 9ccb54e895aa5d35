import sys

import av
import numpy as np
import pytest
from PIL import Image

from fedmed.data.video.clips import ClipRule, PreparedVideos, frame_loader
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.stored_video import Extraction, space_needed
from fedmed.errors import DataError


def taken(path, settings):
    extraction = Extraction(path, settings)
    return np.stack([frame.copy() for frame in extraction]), extraction.facts()


@pytest.mark.parametrize(("name", "first"), [("a.mp4", 0), ("a.avi", 0), ("a.mkv", 0), ("a.ts", 0), ("late.mkv", 3)])
def test_frames_are_taken_by_time_from_the_first_one(write_video, settings, number_of, name, first):
    frames, facts = taken(write_video(name, first=first), settings())
    assert not first or facts["first_second"] == first
    assert frames.shape == (10, 24, 32, 3) and frames.dtype == np.uint8
    assert [number_of(frame) for frame in frames] == list(range(0, 50, 5))
    assert facts["frames"] == 10 and facts["seconds"] == pytest.approx(2) and facts["source_sizes"] == [[24, 32]]
    assert not (facts["damaged"] or facts["times_back"] or facts["cut_short"] or facts["repeated"])


def test_the_frame_shown_at_a_time_is_the_last_that_is_not_later(write_video, settings, number_of):
    seconds = [0, 0.04, 0.19, 0.2, 0.45, 1.3, 1.31]
    frames, facts = taken(write_video(frames=7, seconds=seconds), settings())
    wanted = [max(n for n, second in enumerate(seconds) if second <= k / 5) for k in range(7)]
    assert [number_of(frame) for frame in frames[:7]] == wanted == [0, 3, 3, 4, 4, 4, 4]
    assert facts["repeated"] == 4


def test_a_rate_above_that_of_the_file_repeats_frames(write_video, settings, number_of):
    frames, facts = taken(write_video(frames=5, rate=5), settings(rate=10))
    assert [number_of(frame) for frame in frames] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4] and facts["repeated"] == 5


@pytest.mark.parametrize("turn", [90, 180, -90])
def test_a_rotation_flag_is_followed(write_video, settings, turn):
    upright = np.full((24, 32, 3), 60, np.uint8)
    upright[:12, :16] = 220  # bright at the top left
    lying = np.rot90(upright, -turn // 90)
    frames, _ = taken(write_video(frames=[np.ascontiguousarray(lying)] * 5, rotation=turn), settings())
    assert np.abs(frames[0].astype(int) - upright).mean() < 8


def test_a_size_that_changes(write_video, settings, tmp_path, number_of, frame):
    small = write_video("small.ts", frames=25)
    large = write_video("large.ts", frames=[frame(n, 48, 64) for n in range(25, 50)], first=1)
    both = tmp_path / "both.ts"
    both.write_bytes(small.read_bytes() + large.read_bytes())
    frames, facts = taken(both, settings(damage="count"))
    assert [number_of(frame) for frame in frames] == list(range(0, 50, 5))
    assert facts["source_sizes"] == [[24, 32], [48, 64]]


def test_a_damaged_packet_is_refused_or_counted(damaged, settings, number_of):
    path = damaged()
    with pytest.raises(DataError, match=r"damaged.mp4: the packet at about 1.0[04]0 s is damaged"):
        taken(path, settings())
    frames, facts = taken(path, settings(damage="count"))
    assert facts["damaged"] >= 1 and not facts["cut_short"] and len(frames) == 10
    assert [number_of(frame) for frame in frames[[0, 4, 6, 9]]] == [0, 20, 30, 45]


@pytest.mark.parametrize(("name", "share"), [("short.mkv", 0.6), ("short.mp4", 0.8)])
def test_a_truncated_file_is_told_from_one_that_ends(write_video, cut_short, settings, name, share):
    path = cut_short(write_video(), name, share)
    with pytest.raises(DataError, match="it was cut short|is damaged|reading stops"):
        taken(path, settings())
    frames, facts = taken(path, settings(damage="count"))
    assert facts["cut_short"] and 0 < len(frames) < 10


def test_times_that_go_back(write_video, settings, tmp_path):
    twice = tmp_path / "twice.ts"
    twice.write_bytes(write_video("one.ts").read_bytes() * 2)
    with pytest.raises(DataError, match="the time goes back from|marked as damaged"):
        taken(twice, settings())
    frames, facts = taken(twice, settings(damage="count"))
    assert facts["times_back"] == 49 and len(frames) == 10


def test_files_that_are_no_videos(write_video, settings, tmp_path):
    Image.new("RGB", (32, 24)).save(tmp_path / "one.png")
    for name, content, words in (
        ("empty.mp4", b"", "the file is empty"),
        ("text.mp4", b"no video at all\n" * 50, "cannot be opened as a video"),
        ("no_index.mp4", write_video().read_bytes()[:1500], "cannot be opened as a video .*cut short"),
        ("notes.txt", b"no video at all\n" * 50, ".*not a video"),
        ("list.m3u8", b"#EXTM3U\n#EXTINF:2,\nhttp://127.0.0.1:9/x.ts\n", ""),
        ("one.png", None, "is .*, not a video"),
        ("gone.mp4", None, "the video cannot be read"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name}: {words}"):
            taken(tmp_path / name, settings())


def test_an_audio_file(settings, tmp_path):
    path = tmp_path / "sound.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), format="fltp", layout="mono")
        sound.rate, sound.pts = 16000, 0
        container.mux(stream.encode(sound))
        container.mux(stream.encode())
    with pytest.raises(DataError, match="sound.mp4: has no video stream, only audio"):
        taken(path, settings())


def test_times_that_stand_still(write_video, settings, monkeypatch):
    source = Extraction(write_video(), settings())
    frames = [frame.__class__(0.0, 0.0, None, None) for frame in source.source.frames(source.damage)]
    monkeypatch.setattr(source.source, "frames", lambda damage: iter(frames))
    with pytest.raises(DataError, match=r"all 50 frames have the same time \(frame rate 0\)"):
        list(source)


def test_without_pyav(write_video, settings, monkeypatch):
    path = write_video()
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(DataError, match=r"the package av, .*pip install 'fedmed\[video\]'"):
        taken(path, settings())


def test_borders_are_cut_off_and_bad_frames_dropped(write_video, settings):
    inside = np.zeros((48, 64, 3), np.uint8)
    inside[8:40, 16:48] = (180, 70, 60)
    white, dark = np.full_like(inside, 255), np.zeros_like(inside)
    path = write_video(frames=[*[inside] * 10, *[dark] * 5, *[white] * 5, *[inside] * 5], gop=5)
    frames, facts = taken(path, settings(drop=("white", "dark")))
    assert facts["flagged"]["white"] == [3] and facts["flagged"]["dark"] == [2]
    assert facts["dropped"] == [2, 3] and not frames[2:4].any() and frames[4].any()
    path = write_video("borders.mp4", frames=[inside] * 10)
    frames, facts = taken(path, settings(crop=True))
    assert facts["picture_box"] == pytest.approx([8 / 48, 40 / 48, 16 / 64, 48 / 64], abs=0.02)
    assert (np.abs(frames[0][2:-2, 2:-2].astype(int) - (180, 70, 60)) < 25).all()


@pytest.fixture
def folder(tmp_path, frame):
    """A folder with ten frames, 5 a second."""
    for number in range(10):
        Image.fromarray(frame(number)).save(tmp_path / f"frame_{5 * number:04}.png")
    (tmp_path / "notes.txt").write_text("not a frame")
    return tmp_path


def test_a_folder_of_frames(folder, settings, number_of):
    with pytest.raises(DataError, match="nothing says when its frames are shown; .*frames.csv"):
        taken(folder, settings())
    frames, facts = taken(folder, settings(names_rate=25))
    assert [number_of(frame) for frame in frames] == list(range(10)) and facts["seconds"] == pytest.approx(2)
    lines = [f"frame_{5 * number:04}.png,{number}" for number in range(4)]
    (folder / "frames.csv").write_text("\n".join(["file,second", *lines]))
    frames, facts = taken(folder, settings(rate=2))
    assert [number_of(frame) for frame in frames] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_frames_here_and_there_are_taken_once_without_a_rate(folder, settings, number_of, tmp_path_factory):
    lines = [f"frame_{5 * number:04}.png,{7 * number + number**2}" for number in range(4)]
    (folder / "frames.csv").write_text("\n".join(["file,second", *lines]))
    frames, facts = taken(folder, settings(rate=None))
    assert [number_of(frame) for frame in frames] == [0, 1, 2, 3] and facts["times"] == [0, 8, 18, 30]
    videos = PreparedVideos([{"video": folder}], settings(rate=None), tmp_path_factory.mktemp("cache"))
    batch = next(iter(frame_loader(videos, ClipRule("history", 1), 4)))
    assert batch["time"].tolist() == [[0], [8], [18], [30]] and space_needed([folder], settings(rate=None)).frames == 4
    with pytest.raises(DataError, match="clips with a history need videos prepared at a rate; .*'frame_rate' of"):
        frame_loader(videos, ClipRule("history", 2, interval=1), 4)


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ("name,second\n", "needs the columns 'file' and 'second'"),
        ("file,second\nframe_0000.png,soon\n", "line 2: second is 'soon'"),
        ("file,second\n../x.png,1\n", "is not a path below the folder"),
        ("file,second\n", "has no frames"),
        ("file,second\nframe_0000.png,1\nframe_0005.png,0\n", "the time of frame_0005.png goes back"),
        ("file,second\nframe_0000.png,0\nnone.png,1\n", "the frame none.png cannot be read"),
    ],
)
def test_a_table_of_times_with_mistakes(folder, settings, table, match):
    (folder / "frames.csv").write_text(table)
    with pytest.raises(DataError, match=match):
        taken(folder, settings())


@pytest.mark.parametrize("damage", ["refuse", "count"])
@pytest.mark.parametrize("named", [True, False])
def test_frames_of_two_videos_in_one_folder_are_refused(tmp_path, frame, settings, damage, named):
    for number in range(8):
        Image.fromarray(frame(number)).save(tmp_path / f"{'ab'[number % 2]}_{number // 2:04}.png")
    if not named:
        lines = [f"{video}_{number:04}.png,{number / 5}" for number in range(4) for video in "ab"]
        (tmp_path / "frames.csv").write_text("\n".join(["file,second", *lines]))
    with pytest.raises(DataError, match=r"a_0000.png and b_0000.png (are both of second 0|is the same).*of its own"):
        taken(tmp_path, settings(damage=damage, names_rate=5 if named else None))


def test_a_frame_that_is_listed_twice_at_its_time_is_one_frame(folder, settings, number_of):
    (folder / "frames.csv").write_text("file,second\nframe_0000.png,0\nframe_0005.png,0.2\nframe_0005.png,0.2\n")
    assert [number_of(frame) for frame in taken(folder, settings())[0]][:2] == [0, 1]


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"rate": 0}, "rate is 0; .*'frame_rate'"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"size": (0, 32)}, "size is"),
        ({"drop": ("grey",)}, "use names out of white, dark, out_of_body"),
        ({"damage": "ignore"}, "damage is 'ignore'"),
        ({"names_rate": -1}, "names_rate is -1"),
    ],
)
def test_wrong_settings(values, match):
    with pytest.raises(DataError, match=match):
        FrameSettings(**{"size": (24, 32), **values})


def test_a_slow_film_is_not_taken_for_a_truncated_one(write_video, settings):
    frames, facts = taken(write_video("slow.mkv", frames=5, rate=1), settings(rate=1))
    assert len(frames) == 5 and not facts["cut_short"]
