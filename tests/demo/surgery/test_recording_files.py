"""Videos of synthetic operations on disk: MP4, tables, masks and lists."""

import csv
import json

import av
import cv2
import numpy as np
import pytest

from fedmed.data.operation_names import PHASES, TOOLS
from fedmed.data.video.file_source import write_movie
from fedmed.errors import DataError
from fedmed_demo import KINDS, demo_site
from fedmed_demo.federation import LAP_PHASES, LAP_TOOLS
from fedmed_demo.surgery.profile import VERSION, VideoList
from fedmed_demo.surgery.recording import DrawnRecording
from fedmed_demo.surgery.recording_files import fill, mask_frames, roster
from tests.commands import fedmed


@pytest.fixture(scope="module")
def home(fedmed_home):
    """One tiny hospital; shared with the other tests of the session."""
    return demo_site("lap_tools_tiny", "lap_hei2", fedmed_home)


def test_the_federation_has_the_sizes_of_its_description():
    for site in LAP_TOOLS.values():
        assert 0.19 <= site.counts["testing"] / sum(site.counts.values()) <= 0.34
    prefixes = [site.prefix for site in LAP_TOOLS.values()]
    assert len(set(prefixes)) == len(prefixes) == 5 and set(KINDS["lap_tools_tiny"]) == set(LAP_TOOLS)


def test_every_patient_is_in_one_list():
    for site in LAP_TOOLS.values():
        patients = [patient for _, patient in roster(site)]
        assert len(set(patients)) == len(patients) == sum(site.counts.values())


def test_entries_name_files_of_the_site(home):
    assert home.parent.name == f"lap_tools_tiny-v{VERSION}-seed0"
    lists = json.loads((home / "datalist.json").read_text())
    assert list(lists) == ["training", "validation", "testing"]
    for entries in lists.values():
        for entry in entries:
            assert set(entry) == {"video", "labels", "masks", "patient"}
            assert (home / entry["video"]).is_file() and (home / entry["masks"]).is_dir()


def test_movie_table_and_masks_are_those_of_the_recording(home):
    hospital = KINDS["lap_tools_tiny"]["lap_hei2"]
    recording = DrawnRecording(hospital, "LHB-001")
    frames = list(recording)
    with av.open(str(home / "videos" / "LHB-001.mp4")) as container:
        decoded = list(container.decode(video=0))
    assert [frame.time for frame in decoded] == pytest.approx([frame.time for frame in frames])
    last = decoded[-1].to_ndarray(format="rgb24").astype(int)
    assert np.abs(last - frames[-1].image).mean() < 8  # what the codec loses
    rows = list(csv.DictReader((home / "labels" / "LHB-001.csv").open()))
    assert list(rows[0]) == ["second", "phase", *TOOLS] and len(rows) == recording.operation.seconds
    for second, row in enumerate(rows):
        frame = frames[round(second * hospital.rate)]
        assert row["second"] == str(second) and row["phase"] == PHASES[frame.phase]
        assert [row[tool] for tool in TOOLS] == [str(int(present)) for present in frame.present]
    masks = sorted((home / "masks" / "LHB-001").iterdir())
    assert [path.name for path in masks] == [
        f"{round(1000 * frames[n].time):08d}.png" for n in sorted(mask_frames(recording))
    ]
    for path, number in zip(masks, sorted(mask_frames(recording)), strict=True):
        assert np.array_equal(cv2.imread(str(path), cv2.IMREAD_UNCHANGED), frames[number].mask)


def test_the_list_without_a_tool_shows_none_of_it(home):
    lists = json.loads((home / "datalist.json").read_text())
    rows = [row for entry in lists["testing"] for row in csv.DictReader((home / entry["labels"]).open())]
    assert {row["suction_irrigation"] for row in rows} == {"0"} and {row["grasper"] for row in rows} == {"0", "1"}


def test_a_hospital_without_labels_and_one_with_binary_masks(tmp_path):
    tiny = LAP_TOOLS["lap_cho1"].tiny()
    course = tiny.course.model_copy(update={"seconds": (6.0, 6.0), "outside": 0.0})
    lists = {"testing": VideoList(videos=1), "unlabeled": VideoList(videos=1)}
    fill(tiny.model_copy(update={"parts": "binary", "labels": (), "course": course, "lists": lists}), tmp_path, 0, 1)
    result = json.loads((tmp_path / "datalist.json").read_text())
    assert set(result["testing"][0]) == {"video", "masks", "patient"}
    assert set(result["unlabeled"][0]) == {"video", "patient"}
    values = {int(v) for path in (tmp_path / "masks").rglob("*.png") for v in np.unique(cv2.imread(str(path), -1))}
    assert values <= {0, 1} and not list((tmp_path / "labels").iterdir())


def test_the_federation_for_phases_has_one_labelled_hospital_and_one_outside():
    assert set(KINDS["lap_phases_tiny"]) == set(LAP_PHASES)
    lists = {name: set(site.counts) for name, site in LAP_PHASES.items()}
    assert lists.pop("lap_harbor") == {"training", "validation", "testing"} and lists.pop("lap_isle") == {"testing"}
    assert len(lists) == 4 and set(map(frozenset, lists.values())) == {frozenset({"unlabeled", "testing"})}
    assert len({site.size for site in LAP_PHASES.values()}) == len(LAP_PHASES)
    assert [name for name, site in LAP_PHASES.items() if site.rate_swing] == ["lap_dune"]


def test_at_a_changing_rate_the_table_says_what_is_shown_and_unlabelled_videos_have_one_aside(fedmed_home):
    folder = demo_site("lap_phases_tiny", "lap_dune", fedmed_home)
    local, labelled = (json.loads((folder / f"{name}.json").read_text()) for name in ("datalist", "datalist_labelled"))
    assert all(set(entry) == {"video", "patient"} for entry in local["unlabeled"])
    assert [len(labelled[name]) for name in ("training", "validation", "testing")] == [1, 1, 1]
    assert all((folder / entry["labels"]).is_file() for entries in labelled.values() for entry in entries)
    recording = DrawnRecording(KINDS["lap_phases_tiny"]["lap_dune"], "LPD-001")
    with av.open(str(folder / "videos" / "LPD-001.mp4")) as container:
        times = np.array([frame.time for frame in container.decode(video=0)])
    assert times == pytest.approx(recording.times, abs=1e-3) and np.ptp(np.diff(times)) > 0.2
    rows = list(csv.DictReader((folder / "labels" / "LPD-001.csv").open()))
    assert [int(row["second"]) for row in rows] == list(range(int(recording.operation.seconds)))
    for second, row in enumerate(rows):
        shown = times[times <= second + 1e-6].max()  # the last frame that is not later
        assert row["phase"] == PHASES[recording.operation.phase_at(shown)]


def test_without_pyav_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(DataError, match=r"package av, .*fedmed\[video\]"):
        write_movie(tmp_path / "a.mp4", [], 5.0)
    assert not list(tmp_path.iterdir())


def test_the_command_makes_sites_of_a_kind(home, fedmed_home, capsys):
    main = fedmed("prepare", "demo")
    assert main(["lap_tools_tiny", "--sites", "lap_hei2", "--root", str(fedmed_home), "--processes", "1"]) == 0
    assert str(home) in capsys.readouterr().out
