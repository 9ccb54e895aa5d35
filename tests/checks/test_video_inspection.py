"""A site of videos is opened as training opens it: frames, times, tables, masks, copies, space."""

import json
from dataclasses import replace

import cv2
import numpy as np
import pytest

from fedmed.checks.checked_site import CheckedSite
from fedmed.checks.entries import check_lists, read_entries
from fedmed.checks.facts import round_steps
from fedmed.checks.hospital_report import page, print_checked, write_csv
from fedmed.checks.measurement import Measured, choose_sample, write_datalist
from fedmed.checks.site_check import Options, check_site
from fedmed.checks.video_inspection import MaskInspection, PhaseInspection, VideoInspection
from fedmed.data.datalist import Video
from fedmed.kinds.kind import Kind
from fedmed.kinds.phases import Phases
from fedmed.kinds.segmentation_3d import Segmentation3D
from fedmed.settings.site import load_file
from tests.checks.parts import part_in_job


class Videos(Kind):
    """A kind whose entries are videos with tables."""

    readers = {"video": "fedmed.checks.video_inspection.VideoInspection"}

    def form(self, classes=None):
        return Video()


def film(path, colours):
    """Write ten frames a second, each of one colour (blue, green, red)."""
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), 10, (64, 48))
    for colour in colours:
        writer.write(np.full((48, 64, 3), colour, np.uint8))
    writer.release()


@pytest.fixture
def site(tmp_path):
    """Return a function that writes a site: name of a video -> list; all are of 4 s with a table of two tools."""

    def write(patients=None, **lists):
        for place in ("videos", "labels", "masks"):
            (tmp_path / place).mkdir(exist_ok=True)
        content = {}
        for seed, (name, key) in enumerate(lists.items()):
            film(tmp_path / f"videos/{name}.mp4", [np.uint8([60, 60, 140]) + np.uint8(7 * seed + n) for n in range(40)])
            rows = "".join(f"{second},1,0\n" for second in range(4))
            (tmp_path / f"labels/{name}.csv").write_text(f"second,grasper,clipper\n{rows}")
            entry = {"video": f"videos/{name}.mp4", "labels": f"labels/{name}.csv"}
            content.setdefault(key, []).append(entry | {"patient": (patients or {}).get(name, name)})
        (tmp_path / "datalist.json").write_text(json.dumps(content))
        yaml = tmp_path / "s.yaml"
        yaml.write_text(
            f"site: s\ndata_root: {tmp_path}\ndatalist: {tmp_path}/datalist.json\ncache_dir: {tmp_path}/c\n"
        )
        return yaml

    return write


@pytest.fixture
def opened(site):
    """Return a function: lists -> entries and what is found about them."""

    def open(yaml):
        entries, result = read_entries(load_file(yaml), Video())
        inspection = VideoInspection()
        cases = inspection.open(entries)
        return entries, cases, [*result, *inspection.judge_patients(entries), *inspection.judge(cases, None)]

    return open


def test_a_good_site_has_no_findings(site, opened, tmp_path):
    yaml = site(a="training", b="testing")
    entries, cases, result = opened(yaml)
    assert not result and [case.shape for case in cases.values()] == [(4, 224, 224)] * 2
    inspection = VideoInspection()
    assert inspection.rows(entries, list(cases.values()))[1] == ("training", "1", "1", "0.1", "tools", "0")
    assert inspection.cache_bytes(entries, cases, [], None) == 2 * 4 * 224 * 224 * 3
    assert inspection.cache_bytes(entries, cases, entries[:1], 500.0) == 1000
    assert inspection.cache_bytes(entries, {}, [], None) == 2 * 4 * 224 * 224 * 3  # with --skip data
    reported = list(inspection.judge_labels(entries, ("grasper", "clipper"), "supervised", True))
    assert {(note.kind, note.level) for note in reported} == {("one_sided", "note")} and len(reported) == 4
    assert reported[0].text.startswith("every frame of 'training' shows the tool 'grasper': its positive weight is 0")
    (first, _) = inspection.judge_labels(entries, ("grasper", "hook"), "supervised", True)
    assert first.kind == "video_labels" and "the tool 'clipper' is unknown; use grasper, hook" in first.text
    sample = choose_sample(entries, cases, "evaluate")
    written = json.loads(write_datalist(tmp_path, load_file(yaml), sample).read_text())
    assert written == {"testing": [{"video": "videos/b.mp4", "labels": "labels/b.csv"}]}


def test_what_is_wrong_is_told_entry_by_entry(site, opened, tmp_path):
    yaml = site({"e": "d"}, a="training", b="training", c="testing", d="training", e="testing", f="training")
    (tmp_path / "videos/a.mp4").write_bytes((tmp_path / "videos/a.mp4").read_bytes()[:900])
    (tmp_path / "labels/b.csv").write_text("second,grasper,clipper\n0,1,0\n1,7,0\n")
    (tmp_path / "videos/c.mp4").write_bytes((tmp_path / "videos/f.mp4").read_bytes())
    (tmp_path / "labels/f.csv").unlink()
    result = opened(yaml)[2]
    assert sorted(finding.kind for finding in result) == ["missing", "patient", "video", "video_labels"]
    text = {finding.kind: finding.text for finding in result}
    assert text["video"].startswith("training, entry 0 (a.mp4): cannot be opened as a video")
    assert "b.csv: line 3: 'grasper' is '7'" in text["video_labels"] and "patient 'd'" in text["patient"]


def test_copies_and_frames_out_of_the_body(site, opened, tmp_path):
    yaml = site(a="training", b="testing")
    (tmp_path / "videos/b.mp4").write_bytes((tmp_path / "videos/a.mp4").read_bytes())
    assert [finding.kind for finding in opened(yaml)[2]] == ["copy"]
    film(tmp_path / "videos/b.mp4", [(140, 120, 60)] * 40)
    (note,) = opened(yaml)[2]
    assert note.kind == "odd_video" and note.level == "note" and "4 of 4 frames look as if" in note.text


def test_a_round_of_epochs_is_as_long_as_the_frames_of_all_videos(site, opened):
    yaml = site(**dict.fromkeys("abcde", "training"), f="validation")
    entries, cases, _ = opened(yaml)
    work = part_in_job("b", "supervised", epochs=2)
    measured = Measured(batch=8, step_seconds=0.5, frames=24)  # of three videos, which have 4 seconds each
    known = {"entries": entries, "cases": cases, "kind": Videos(), "role": "supervised", "work": work}
    checked = CheckedSite(load_file(yaml), measured=measured, **known)
    assert (checked.trained_on, checked.samples) == (5, 40) and round_steps(checked) == 10
    assert replace(checked, measured=None).samples == 5


def test_the_whole_check_and_what_it_writes(site, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fedmed.checks.site_check.kind_by_look", lambda content: Videos())
    checked = check_site(str(site(a="training", b="testing", c="validation")), Options())
    assert checked.ready and not checked.findings
    assert checked.spaces[0].needed == 12 * 224 * 224 * 3
    listed = write_csv(checked, tmp_path / "checked.csv").read_text()
    assert "videos/a.mp4" in listed
    print_checked(checked, None, tmp_path / "page.html")
    assert "minutes" in capsys.readouterr().out
    assert "a.mp4" not in page(checked)


def test_phases_that_the_job_does_not_know(site, opened, tmp_path):
    yaml = site(a="training", b="testing")
    for name in "ab":
        (tmp_path / f"labels/{name}.csv").write_text("second,phase\n0,clipping\n1,clipping\n2,clipping\n3,cleaning\n")
    entries, _, result = opened(yaml)
    assert not result and not list(PhaseInspection().judge_labels(entries, ("clipping", "cleaning"), None, True))
    (first, _) = PhaseInspection().judge_labels(entries, ("clipping", "clean"), None, True)
    assert first.kind == "video_labels" and "line 5: the phase 'cleaning' is unknown; use clipping, clean" in first.text


def test_training_without_labels_takes_videos_of_either_list(tmp_path):
    """As at the labelled hospital that trains features first: it has 'training' and no 'unlabeled'."""
    for lists in ({"training": 3}, {"unlabeled": 3}):
        assert list(check_lists({**lists, "testing": 1}, "unsupervised", tmp_path, Phases())) == []
    (none,) = check_lists({"testing": 1}, "unsupervised", tmp_path, Phases())
    assert none.level == "problem" and "the list 'unlabeled' is empty" in none.text
    (scans,) = check_lists({"training": 3, "testing": 1}, "unsupervised", tmp_path, Segmentation3D())
    assert scans.level == "problem", "masks beside scans without any, which are needed"


def test_phases_that_are_missing_or_alone_or_in_an_odd_order(site, opened, tmp_path):
    yaml = site(a="training", b="testing")
    names = ("preparation", "hepatocystic_triangle_dissection", "clipping_and_cutting")
    for video, order in {"a": (1, 1, 1, 1), "b": (0, 2, 1, 1)}.items():
        rows = "".join(f"{second},{names[phase]}\n" for second, phase in enumerate(order))
        (tmp_path / f"labels/{video}.csv").write_text(f"second,phase\n{rows}")
    entries, _, (note,) = opened(yaml)
    assert (note.kind, note.level) == ("odd_video", "note")
    assert note.text.startswith("testing, entry 0 (b.mp4): 'hepatocystic_triangle_dissection' begins at 2 s, after 'cl")
    problem, *notes = PhaseInspection().judge_labels(entries, names, "supervised", True)
    assert (problem.kind, problem.level, problem.list) == ("one_class", "problem", "training")
    assert problem.text.startswith("every frame of 'training' is of the phase 'hepatocystic_triangle_dissection'")
    assert [note.text.partition(":")[0] for note in notes] == [
        "no row of 'training' is of the phase 'preparation'",
        "no row of 'training' is of the phase 'clipping_and_cutting'",
    ]
    assert {note.kind for note in PhaseInspection().judge_labels(entries, names, "unsupervised", True)} == {"one_sided"}


@pytest.fixture
def masked(site, tmp_path):
    """Return a function: times of masks in ms -> a site of one video of ten frames a second with these masks."""

    def write(*times, value=0, more=()):
        yaml = site(a="training")
        (tmp_path / "masks/a").mkdir()
        for time in times:
            cv2.imwrite(str(tmp_path / f"masks/a/{time:08d}.png"), np.full((48, 64), value, np.uint8))
        entries = [{"video": "videos/a.mp4", "masks": "masks/a", "patient": "a"}, *more]
        (tmp_path / "datalist.json").write_text(json.dumps({"training": entries}))
        return yaml

    return write


def test_masks_count_at_the_rate_of_the_job(masked):
    """Each list is streamed once, whatever the job's rate; where no mask is left it is a problem."""
    entries, _ = read_entries(load_file(masked(100, 200, 400, 500)), Video(labels=False, masks=True))
    cases = MaskInspection().open(entries)
    assert not MaskInspection().judge(cases, None), "no rate is foretold"
    assert not [*MaskInspection().judge_rate(cases, None), *MaskInspection().judge_rate(cases, 10.0)]
    assert not [*VideoInspection().judge_rate(cases, 1.0)]
    for rate, used, kind, level in ((5.0, 2, "unused_masks", "note"), (1.0, 0, "video_labels", "problem")):
        (result,) = MaskInspection().judge_rate(cases, rate)
        assert (result.kind, result.level, result.list, result.entry) == (kind, level, "training", 0)
        assert f"{used} of 4 masks are used at the job's {rate:g} frames a second; at 10 a second all" in result.text


def test_the_check_takes_the_rate_of_the_bundle(masked):
    yaml = masked(0, 300, 400)
    options = Options(job="instrument_segmentation", overlays=["demo"], skip=("training", "disk", "device"))
    (note,) = (one for one in check_site(str(yaml), options).findings if one.kind == "unused_masks")
    assert "2 of 3 masks are used at the job's 5 frames a second; at 10 a second all of them" in note.text
    kinds = {one.kind for one in check_site(str(yaml), replace(options, job=None, overlays=())).findings}
    assert not kinds & {"unused_masks", "odd_video"}


def test_masks_whose_values_stand_for_no_class_of_the_job(masked):
    yaml = masked(1000, value=9, more=[{"video": "videos/a.mp4"}])
    entries, result = read_entries(load_file(yaml), Video(labels=False, masks=True))
    assert [finding.text for finding in result] == [
        "training, entry 1 has no 'masks'; cases without masks belong into 'unlabeled'"
    ]
    inspection = MaskInspection()
    cases = inspection.open(entries)
    assert not inspection.judge(cases, None) and cases[entries[0]].masks == 1
    assert not list(inspection.judge_labels(entries, [str(n) for n in range(9)], None, True))
    (wrong,) = inspection.judge_labels(entries, ("shaft", "jaw"), None, True)
    assert wrong.kind == "video_labels" and "00001000.png: the mask has the value 9; use 0, 1, 2" in wrong.text
