"""From a folder of recordings to a site, in each layout: what is found, read and refused, who is in which list."""

import csv
import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from fedmed.data.datalist import Video, load_datalist
from fedmed.data.prepare.video_inspect import WantedVideos
from fedmed.data.prepare.video_site import find_recordings, prepare_video_site
from fedmed.data.video.frame_masks import FrameMasks
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.label_table import read_label_table
from fedmed.data.video.video_store import VideoStore
from fedmed.errors import DataError
from fedmed.files import CHECKOUT
from fedmed.plain_text import in_markdown
from tests.commands import fedmed

MAIN = fedmed("prepare", "video")
DATA = Path(os.environ.get("FEDMED_DATA") or CHECKOUT.parent / "shared" / "data").expanduser()
LISTS = ("training", "validation", "testing")


def text(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def table(path, seconds=4, header="second,phase,grasper", row="{},first,1"):
    return text(path, header, *(row.format(second) for second in range(seconds)))


@pytest.fixture
def plain(tmp_path, movie):
    """Six labelled videos of six patients."""
    for seed, name in enumerate("abcdef"):
        movie(tmp_path / "in" / "videos" / f"{name}.mp4", seed)
        table(tmp_path / "in" / "labels" / f"{name}.csv")
    return tmp_path / "in"


@pytest.fixture
def prepare(tmp_path):
    """Return a function that makes a site and gives lists, and refusals by name."""

    def prepare(folder, wanted=None, **options):
        wanted = wanted or WantedVideos()
        prepared = prepare_video_site(folder, tmp_path / "out", "s", wanted, **options)
        lists = json.loads((tmp_path / "out" / "datalist.json").read_text())
        return prepared, lists, {case.case: "; ".join(case.faults) for case in prepared.cases if case.faults}

    return prepare


def test_a_site_that_training_reads(plain, prepare, tmp_path):
    prepared, lists, refused = prepare(plain)
    assert {name: len(entries) for name, entries in lists.items()} == dict(zip(LISTS, (4, 1, 1), strict=True))
    assert not refused and "24 frames of 224 x 224 pixels" in prepared.sections["Space of the prepared frames"][0]
    (case,) = load_datalist(tmp_path / "out", tmp_path / "out" / "datalist.json", "testing", form=Video())
    stored = VideoStore(tmp_path / "cache", FrameSettings((24, 32), 2)).get(case["video"])
    assert read_label_table(case["labels"], ("first",), ("grasper",)).tools_of(stored).tolist() == [[1]] * 8
    rows = list(csv.DictReader((tmp_path / "out" / "prepare_report.csv").open()))
    assert [row["label"] for row in rows] == ["phases, tools"] * 6 and rows[0]["video"] == "prepared/videos/a.mp4"
    again = (tmp_path / "out" / "datalist.json").read_bytes()
    prepare(plain, copy=True)
    assert (tmp_path / "out" / "datalist.json").read_bytes() == again
    assert not (tmp_path / "out" / "prepared" / "videos" / "a.mp4").is_symlink()


def test_bad_videos_and_tables_are_refused_and_counted(plain, prepare, movie):
    good = plain / "videos" / "a.mp4"
    (plain / "videos" / "b.mp4").write_bytes(good.read_bytes()[:-400])
    (plain / "videos" / "c.mp4").write_bytes(good.read_bytes())
    (plain / "videos" / "empty.mp4").touch()
    table(plain / "labels" / "d.csv", 9)
    table(plain / "labels" / "e.csv", row="{},first,3")
    movie(plain / "videos" / "g.mp4", 9)  # without labels
    _, lists, refused = prepare(plain)
    assert sorted(refused) == ["b.mp4", "c.mp4", "d.mp4", "e.mp4", "empty.mp4"]
    assert "cannot be opened as a video" in refused["b.mp4"] and "the file is empty" in refused["empty.mp4"]
    assert refused["c.mp4"] == "same frames as 'a.mp4' of another patient, 'a'; one video counts once"
    assert "d.csv: is longer than its video" in refused["d.mp4"] and "preparing" not in refused["d.mp4"]
    assert "e.csv: line 2: 'grasper' is '3'" in refused["e.mp4"]
    assert lists["unlabeled"] == [{"video": "prepared/videos/g.mp4", "patient": "g"}]


def test_videos_without_labels_are_noted(plain, prepare, png):
    (plain / "labels" / "a.csv").rename(plain / "labels" / "aa.csv")
    (plain / "labels" / "b.csv").unlink()
    png(plain / "masks" / "b" / "00001000.png", [0])
    notes = prepare(plain)[0].sections["Worth a look"]
    assert [note.partition(" ×")[0] for note in notes] == ["1", "1"]
    assert "it has no table of labels, as others have" in notes[0] and "(b.mp4)" in notes[0]
    assert "neither labels nor masks were found" in notes[1] and "(a.mp4)" in notes[1]
    assert not prepare(plain, WantedVideos(ignore=True))[0].sections["Worth a look"]


def test_tools_that_a_list_never_or_always_shows_and_white_frames(plain, prepare, tmp_path):
    for name in "abcdef":
        table(plain / "labels" / f"{name}.csv", header="second,grasper,clipper", row="{0},1,0")
    writer = cv2.VideoWriter(str(plain / "videos" / "a.mp4"), cv2.VideoWriter_fourcc(*"mp4v"), 25, (64, 48))
    for number in range(100):
        writer.write(np.full((48, 64, 3), 255 if 20 < number < 70 else 90, np.uint8))
    writer.release()
    sections = prepare(plain)[0].sections
    said = sections["Tools that a list never or always shows"]
    assert len(said) == 6 and all("shows the tool 'grasper'" in line for line in said[::2])
    assert said[0].startswith("every frame of 'training' shows the tool 'grasper': its positive weight is 0")
    assert said[5].startswith("no frame of 'testing' shows the tool 'clipper': its F1 there is 0, or left out")
    assert sections["Rows that show each tool"][0] == "training: grasper 100.0%, clipper 0.0%"
    (white,) = sections["White frames"]
    assert " of 24 frames (a.mp4 2, " in white and "more than 50% of the pixels" in white
    assert in_markdown(white) in (tmp_path / "out" / "prepare_report.md").read_text()


def test_phases_that_a_list_never_or_always_shows_and_an_odd_order(plain, prepare, tmp_path):
    good = ("preparation", "hepatocystic_triangle_dissection", "clipping_and_cutting", "gallbladder_dissection")
    for name in "abcdef":
        rows = (f"{second},{phase}" for second, phase in enumerate(good))
        text(plain / "labels" / f"{name}.csv", "second,phase", *rows)
    prepared, lists, _ = prepare(plain)
    sections = prepared.sections
    assert not sections["Worth a look"] and not sections["Phases that a list never or always shows"]
    assert sections["Rows of each phase"][1] == "validation: " + ", ".join(f"{phase} 25.0%" for phase in good)
    (tested,) = (Path(entry["video"]).stem for entry in lists["testing"])
    text(plain / "labels" / f"{tested}.csv", "second,phase", *(f"{second},clipping_and_cutting" for second in range(4)))
    trained = Path(lists["training"][0]["video"]).stem
    rows = (f"{second},{good[phase]}" for second, phase in enumerate((0, 2, 1, 3)))
    text(plain / "labels" / f"{trained}.csv", "second,phase", *rows)
    sections = prepare(plain)[0].sections
    said = sections["Phases that a list never or always shows"]
    assert said[0] == "every row of 'testing' is of the phase 'clipping_and_cutting'" and len(said) == 4
    assert said[1] == "no row of 'testing' is of the phase 'preparation': nothing is said of it"
    (odd,) = sections["Worth a look"]
    assert odd.startswith("1 × 'hepatocystic_triangle_dissection' begins at 2 s, after 'clipping_and_cutting'")
    assert odd.endswith(f"({trained}.mp4)") and odd in (tmp_path / "out" / "prepare_report.md").read_text()


def test_names_of_phases_and_tools(plain, prepare):
    table(plain / "labels" / "a.csv", header="second,phase,graspers")
    assert "differ in the columns grasper, graspers" in prepare(plain)[2]["a.mp4"]
    refused = prepare(plain, WantedVideos(tools=("grasper",)))[2]
    assert list(refused) == ["a.mp4"] and "did you mean 'grasper'?" in refused["a.mp4"]
    with pytest.raises(DataError, match="none of 6 videos is usable(.|\n)*the phase 'first' is unknown; use second"):
        prepare(plain, WantedVideos(phases=("second",)))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"row": "{},Präparation,1"}, "a phase 'Präparation'"),
        ({"row": "{},a/b,1"}, "a phase 'a/b'"),
        ({"header": "second,phase,schere (links)"}, "a tool 'schere (links)'"),
    ],
)
def test_names_that_no_job_can_carry_are_refused_with_the_letters_that_can_be(plain, prepare, changed, said):
    table(plain / "labels" / "a.csv", **changed)
    for name in "bcdef":
        (plain / "labels" / f"{name}.csv").unlink()
    refused = prepare(plain)[2]
    assert list(refused) == ["a.mp4"]
    assert f"labels/a.csv: no job can have {said}: use 1 to 64 letters a-z, digits," in refused["a.mp4"]
    assert not prepare(plain, WantedVideos(ignore=True))[2]


def test_patients_of_a_pattern_and_of_a_list(plain, prepare, tmp_path):
    _, lists, _ = prepare(plain, WantedVideos(patient_pattern="^[abc]"), fractions=(0, 0, 1))
    assert [entry["patient"] for entry in lists["testing"]] == ["a", "b", "c"]
    text(plain / "videos.csv", "video,patient,labels,list", "videos/a.mp4,p,labels/a.csv,training",
         "videos/b.mp4,q,labels/b.csv,testing", "videos/c.mp4,p,,unlabeled")  # fmt: skip
    _, lists, _ = prepare(plain)
    assert {name: [entry["patient"] for entry in entries] for name, entries in lists.items()} == {
        "training": ["p"], "testing": ["q"], "unlabeled": ["p"]
    }  # fmt: skip
    before = (tmp_path / "out" / "datalist.json").read_bytes()
    text(plain / "videos.csv", "video,patient,labels,list", "videos/a.mp4,p,labels/a.csv,training",
         "videos/b.mp4,p,labels/b.csv,testing")  # fmt: skip
    with pytest.raises(DataError, match=r"patient 'p' is in two lists, training \(a.mp4\) and testing \(b.mp4\)"):
        prepare(plain)
    assert (tmp_path / "out" / "datalist.json").read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if "preparing" in path.name]


def test_masks_of_plain_videos(plain, prepare, tmp_path, png):
    for name in "ab":
        for time in (1000, 3000):
            png(plain / "masks" / name / f"{time:08d}.png", [1, 2, 3])
    png(plain / "masks" / "b" / "00002000.png", [255])
    png(plain / "masks" / "c" / "00002000.png", [1], (20, 64))
    png(plain / "masks" / "d" / "00009000.png", [1])
    prepared, lists, refused = prepare(plain)
    assert sorted(refused) == ["b.mp4", "c.mp4", "d.mp4"] and "the mask has the value 255" in refused["b.mp4"]
    assert "has shape (20, 64), and its video" in refused["c.mp4"] and "is of 9 s, but" in refused["d.mp4"]
    (one,) = (entry for entries in lists.values() for entry in entries if "masks" in entry)
    assert sorted(path.name for path in (tmp_path / "out" / one["masks"]).iterdir()) == ["00001000.png", "00003000.png"]
    assert prepared.cases[0].label == "phases, tools, masks"


def test_masks_between_the_frames_are_told_with_the_rate_that_uses_them(plain, prepare, png):
    for time in (1000, 1200, 2000):
        png(plain / "masks" / "a" / f"{time:08d}.png", [1, 2, 3])
    prepared, _, _ = prepare(plain)
    assert prepared.cases[0].notes == ["at 1 a second some masks are left out; at 5 a second all of them are used"]


def test_cholec80(prepare, tmp_path, movie):
    folder = tmp_path / "in"
    for seed, name in enumerate(("video01", "video02", "video03")):
        movie(folder / "videos" / f"{name}.mp4", seed)
        phases = ["Preparation"] * 50 + ["CalotTriangleDissection"] * 50
        rows = (f"{frame}\t{phase}" for frame, phase in enumerate(phases))
        text(folder / "phase_annotations" / f"{name}-phase.txt", "Frame\tPhase", *rows)
        rows = (f"{25 * n}\t1\t{int(n == 1)}\t{int(n == 2)}\t0\t0\t0\t{n % 2}" for n in range(4))
        head = "Frame\tGrasper\tBipolar\tHook\tScissors\tClipper\tIrrigator\tSpecimenBag"
        text(folder / "tool_annotations" / f"{name}-tool.txt", head, *rows)
    text(folder / "tool_annotations" / "video02-tool.txt", head.replace("Hook", "Hok"), "0" + 7 * "\t1")
    movie(folder / "videos" / "video04.mp4", 7)
    movie(folder / "videos" / "video05.mp4", 5)
    text(folder / "tool_annotations" / "video05-tool.txt", head.replace("\tHook", ""), "0" + 6 * "\t1")
    (folder / "tool_annotations" / "video03-tool.txt").unlink()
    _, _, refused = prepare(folder)
    assert "video02-tool.txt: line 1: the tool 'Hok' is unknown" in refused["video02.mp4"]
    assert "video05-tool.txt: line 1: the column 'Hook' is missing; it has Frame, Grasper" in refused["video05.mp4"]
    assert sorted(refused) == ["video02.mp4", "video03.mp4", "video05.mp4"]
    assert "differ in the columns clipper" in refused["video03.mp4"]
    read = read_label_table(tmp_path / "out/prepared/labels/video01.mp4.csv", None, None)
    assert read.tool_names == ("grasper", "clipper", "coagulation", "scissors", "suction_irrigation", "specimen_bag")
    assert read.tools[:, 2].tolist() == [0, 1, 1, 0] and read.tools[:, 5].tolist() == [0, 1, 0, 1]
    phases = ("preparation", "hepatocystic_triangle_dissection")
    assert [read.phase_names[phase] for phase in read.phases] == np.repeat(phases, 2).tolist()


def test_heichole(prepare, tmp_path, movie):
    folder = tmp_path / "in"
    for number in (1, 2):
        movie(folder / "Videos" / f"Hei-Chole{number}.mp4", number)
        rows = (f"{frame},{frame // 50}" for frame in range(100))
        text(folder / "Annotations" / "Phase" / f"Hei-Chole{number}_Annotation_Phase.csv", *rows)
        rows = (f"{frame},0,1,{int(frame >= 75)},0,0,0,1,9" for frame in range(100 if number == 1 else 60))
        text(folder / "Annotations" / "Instrument" / f"Hei-Chole{number}_Annotation_Instrument.csv", *rows)
    _, lists, refused = prepare(folder)
    ends = "Hei-Chole2_Annotation_Instrument.csv: ends at 2 s, and Hei-Chole2_Annotation_Phase.csv at 3 s"
    assert ends in refused["Videos/Hei-Chole2.mp4"]
    ((entry,),) = lists.values()
    assert entry["patient"] == "Hei-Chole1"  # whichever folder, so that two sizes of a video are one patient
    read = read_label_table(tmp_path / "out" / entry["labels"], None, None)
    assert read.tools[:, 1].tolist() == [1] * 4 and read.tools[:, 2].tolist() == [0, 0, 0, 1]
    assert read.phases.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("phase", [-1, 7])
def test_a_number_that_is_no_phase(prepare, tmp_path, movie, cholect50, phase):
    """HeiChole and CholecT50 number phases from 0 to 6."""
    for number, last in ((1, 6), (2, phase)):
        movie(tmp_path / "in" / f"Hei-Chole{number}.mp4", number)
        rows = (f"{frame},{last if frame == 75 else 0}" for frame in range(100))
        text(tmp_path / "in" / f"Hei-Chole{number}_Annotation_Phase.csv", *rows)
    ((name, fault),) = prepare(tmp_path / "in")[2].items()
    assert name == "Hei-Chole2.mp4" and f"line 76: the phase {phase} is unknown; phases are 0 to 6" in fault
    for video, last in (("VID01", 6), ("VID02", phase)):
        cholect50(tmp_path / "triplets", video, phases=(0, 1, last))
    ((name, fault),) = prepare(tmp_path / "triplets")[2].items()
    assert name == "VID02" and f"with one phase of 0 to 6 and tools of 0 to 5; it has phases [{phase}]" in fault


@pytest.fixture
def cholect50(png):
    """Return a function that writes a video of CholecT50 into a folder."""

    def write(folder, video="VID01", frames=(3, 5, 20), phases=(0, 1, 2)):
        triplet = [17, 2, 1.0, 0.1, 0.5, 0.2, 0.1, 1, 0, 1.0, -1.0, -1.0, -1.0, -1.0]
        annotations = {str(frame): [[*triplet, phase]] * 2 for frame, phase in zip(frames, phases, strict=False)}
        text(folder / "labels" / f"{video}.json", json.dumps({"fps": 1, "annotations": annotations}))
        for frame in frames:
            png(folder / "videos" / video / f"{frame:06d}.png", [frame, len(video)])

    return write


def test_cholect50_frames_stay_where_they_are(prepare, tmp_path, cholect50):
    cholect50(tmp_path / "in")
    before = sorted((tmp_path / "in").rglob("*"))
    prepare(tmp_path / "in")
    video = tmp_path / "out" / "prepared" / "videos" / "VID01"
    assert (video / "000003.png").resolve() == tmp_path / "in" / "videos" / "VID01" / "000003.png"
    assert sorted((tmp_path / "in").rglob("*")) == before
    stored = VideoStore(tmp_path / "cache", FrameSettings((24, 32), None)).get(video)
    read = read_label_table(tmp_path / "out/prepared/labels/VID01.csv", None, None)
    assert stored.times.tolist() == [0, 2, 17] and read.phases_of(stored).tolist() == [0, 1, 2]
    assert read.tools[:, 1].tolist() == [1, 1, 1] and read.tool_names[1] == "coagulation"
    with pytest.raises(DataError, match="--leave-out: the phase 'packaging' is unknown.*'gallbladder_packaging'"):
        prepare(tmp_path / "in", WantedVideos(leave_out=("packaging",)))
    prepare(tmp_path / "in", WantedVideos(leave_out=("clipping_and_cutting",)))
    assert len(list(video.glob("*.png"))) == 2


def test_a_site_for_each_video(tmp_path, capsys, cholect50, png):
    for number, name in enumerate(("VID01", "VID02")):
        cholect50(tmp_path / "in", name, (3 + number, 5 + number))
    text(tmp_path / "in" / "labels" / "VID03.json", "{}")
    png(tmp_path / "in" / "videos" / "VID03" / "000001.png", [1])
    arguments = ["--site", "t", "--each", "--out", str(tmp_path / "sites"), "--workers", "1"]
    assert MAIN([str(tmp_path / "in"), *arguments]) == 0
    assert sorted(path.name for path in (tmp_path / "sites").iterdir()) == ["t_vid01", "t_vid02"]
    assert "site 't_vid03' is not made" in capsys.readouterr().err
    assert "site: t_vid01" in (tmp_path / "sites" / "t_vid01" / "t_vid01.yaml").read_text()


def test_endovis2017_parts(prepare, tmp_path, png):
    for number in range(4):
        place = tmp_path / "in" / "instrument_dataset_1"
        png(place / "left_frames" / f"frame{number:03d}.png", [40 + number])
        png(place / "ground_truth" / "Left_Forceps_labels" / f"frame{number:03d}.png", [10, 20])
        png(place / "ground_truth" / "Right_Forceps_labels" / f"frame{number:03d}.png", [0, 0, 30])
        png(place / "ground_truth" / "Other_labels" / f"frame{number:03d}.png", [0, 0, 0, 40])
    prepared, lists, _ = prepare(tmp_path / "in")
    ((entry,),) = lists.values()
    stored = VideoStore(tmp_path / "cache", FrameSettings((48, 64), None)).get(tmp_path / "out" / entry["video"])
    masks = FrameMasks(tmp_path / "out" / entry["masks"], range(4))
    assert prepared.cases[0].masks == 4 and stored.times.tolist() == [0, 0.5, 1, 1.5]
    assert masks.read(masks.of(stored)[2], stored)[:5, 0].tolist() == [1, 2, 3, 0, 0]


def test_endovis2018_parts(prepare, tmp_path, png):
    for sequence, odd in (("seq_1", (0, 0, 0)), ("seq_2", (9, 9, 9))):
        place = tmp_path / "in" / "release_1" / sequence
        png(place / "left_frames" / "frame000.png", [40, len(odd) + odd[0]])
        colours = np.zeros((48, 64, 3), np.uint8)
        colours[:5, :] = np.array([(0, 255, 0), (125, 255, 12), (0, 255, 255), (255, 55, 0), odd])[:, None]
        (place / "labels").mkdir()
        cv2.imwrite(str(place / "labels" / "frame000.png"), colours[..., ::-1])
    _, lists, refused = prepare(tmp_path / "in")
    assert list(refused) == ["release_1/seq_2"] and "colour (9, 9, 9)" in refused["release_1/seq_2"]
    ((entry,),) = lists.values()
    assert cv2.imread(str(tmp_path / "out" / entry["masks"] / "00000000.png"), 0)[:6, 0].tolist() == [1, 2, 3, 0, 0, 0]


def test_sar_rarp50_parts(prepare, tmp_path, movie, png):
    movie(tmp_path / "in" / "video_01" / "video_left.avi", rate=20)
    for frame in (0, 20, 60):
        png(tmp_path / "in" / "video_01" / "segmentation" / f"{frame:09d}.png", [1, 2, 3, 4, 9])
    ((entry,),) = prepare(tmp_path / "in")[1].values()
    files = sorted((tmp_path / "out" / entry["masks"]).iterdir())
    assert [path.name for path in files] == ["00000000.png", "00001000.png", "00003000.png"]
    assert cv2.imread(str(files[1]), 0)[:6, 0].tolist() == [3, 2, 1, 0, 0, 0]


def test_layouts_are_told_apart(plain, tmp_path, cholect50):
    assert find_recordings(plain, WantedVideos())[0] == "plain"
    (plain / "phase_annotations").mkdir()
    assert find_recordings(plain, WantedVideos())[0] == "cholec80"
    cholect50(plain)
    with pytest.raises(DataError, match="looks like cholec80 and cholect50; say which with --layout"):
        find_recordings(plain, WantedVideos())
    with pytest.raises(DataError, match="the layout 'heidelberg' is unknown; use one of cholec80"):
        find_recordings(plain, WantedVideos("heidelberg"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no video for the layout 'plain'"):
        find_recordings(tmp_path / "empty", WantedVideos())


@pytest.mark.skipif(not (DATA / "surgery_cholect50").is_dir(), reason="the real frames are not in ../shared/data")
def test_the_real_frames_become_four_sites(tmp_path):
    arguments = ["--site", "real", "--each", "--out", str(tmp_path), "--workers", "1"]
    assert MAIN([str(DATA / "surgery_cholect50"), *arguments]) == 0
    frames = [len(list(path.glob("prepared/videos/*/*.jpg"))) for path in sorted(tmp_path.iterdir())]
    assert frames == [243, 160, 441, 120]


def test_a_site_of_scans_does_not_become_one_of_videos(plain, tmp_path, capsys):
    site = tmp_path / "site"
    site.mkdir()
    (site / "prepare_report.csv").touch()
    (site / "datalist.json").write_text('{"training": [{"image": "a.nii.gz", "label": "b.nii.gz"}]}')
    assert MAIN([plain, "--site", "s", "--out", site, "--workers", "1"]) == 2
    assert "holds a site of volumes, and this one is of videos; give another name" in capsys.readouterr().err
    assert "a.nii.gz" in (site / "datalist.json").read_text()
