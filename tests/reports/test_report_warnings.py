"""Warnings of the server and updates that it cut reach who watches a run, and who reads its report."""

import json
from types import SimpleNamespace

import pytest

from fedmed.reports.live import Follower, render
from fedmed.reports.notes import clip_note, clip_rows, few_cases_notes, release_notes
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from fedmed.reports.run_report import report_of
from tests.reports.records import change, change_rounds, change_test, shown

pytestmark = pytest.mark.usefixtures("no_charts")
LINE = {"round": 1, "warnings": [{"site": "ct_east", "message": "80 % of voxels, lower unsupervised_learning_rate"}]}
RECORDS = [
    {"norms": {"ct_north": 4.0, "ct_south": 2.0}, "clipped": {}},
    {"norms": {"ct_north": 40.0, "ct_south": 2.5}, "clipped": {"ct_north": 0.125}},
    {"norms": {"ct_north": None, "ct_south": 3.0, "ct_east": 1.0}, "clipped": {"ct_north": 0.0}},
]


def test_a_warning_is_a_plain_line_and_stays_in_the_display(tmp_path):
    follower = Follower(tmp_path, "job", ["ct_east"])
    path = tmp_path / "server/simulate_job/fedmed/rounds.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(LINE) + "\n" + json.dumps({"round": 2}) + "\n")
    lines = follower.poll()
    assert lines[0].splitlines()[1] == "WARNING ct_east: 80 % of voxels, lower unsupervised_learning_rate"
    assert "warning, round 2: ct_east: 80 % of voxels" in shown(render(follower.state, 0.0), width=140)


def test_no_word_is_cut_at_80_columns(fake_run):
    names = {"university_hospital_north_campus": "supervised", "clinic_with_a_long_name_too": "unsupervised"}
    folder = fake_run(rounds=2, sites=names)
    for name in names:
        change_test(folder, name, hd95_median=12.5)
    run = read_run(folder)
    text = shown(report_of(run).table(run))
    assert "…" not in text and "HD95" in text and text.count("12.5 mm") == 2
    assert max(map(len, text.splitlines())) <= 80
    kept = "".join(line[:20].strip() for line in text.splitlines())
    assert all(part in kept for part in ("university", "campus", "clinic"))


def test_the_terminal_says_whose_decoder_scored_a_site_and_keeps_its_numbers_at_80_columns(fake_run):
    folder = fake_run(rounds=2)
    change_test(folder, "ct_east", decoder_of="ct_north")
    entry = {"model": "selected", "from": "ct_north", "for": ["ct_east"]}
    released = {**entry, "released": True, "n_tensors": 25, "bytes_up": 302088}
    for releases, words in (
        ([released], "ct_north allowed its release (25 tensors, 302 kB)."),
        ([{**entry, "reason": "it did not answer"}], "ct_north released none: it did not answer."),
        ([{**entry, "reason": "tensor 'x[/red]' is unknown"}], "tensor 'x[/red]' is unknown."),
    ):
        result = change(folder, "result", releases=releases)
        run = read_run(folder)
        text = shown(report_of(run).table(run))
        assert "with ct_north's decoder" in text and words in " ".join(text.split())
        assert f"{result['test']['ct_west']['dice_mean']:.3f}" in text
    assert "unlabelled site ct_east with ct_north's decoder" in report_of(run).summary(run)


def test_the_mean_of_all_sites_is_told_with_who_released_and_who_did_not(fake_run):
    folder = fake_run(rounds=2)
    entry = {"model": "selected", "from": "all", "for": ["ct_west"], "asked": ["ct_north", "ct_south"]}
    refusal = {"refused": {"ct_south": "it does not allow it"}}
    mean = {"released": True, "weights": {"ct_north": 1.0}, "weighting": "samples", "n_tensors": 25, "bytes_up": 302088}
    for release, words in (
        (mean, "by training samples, because none was trained there: ct_west. Released by ct_north 1 (25 tensors"),
        ({**mean, **refusal}, "ct_south released none: it does not allow it."),
        ({**mean, "kept": False, "not_kept": "ct_north did not allow it"}, "is not kept: ct_north did not allow it."),
        ({"released": False, **refusal}, "because none was trained there: ct_west. ct_south released none"),
    ):
        change(folder, "result", releases=[{**entry, **release}])
        assert words in " ".join(release_notes(read_run(folder)))


def test_a_warning_stands_at_the_top_of_the_page(fake_run):
    folder = fake_run(rounds=2)
    change_rounds(folder, lambda place, _: {"warnings": LINE["warnings"]} if place else {})
    html = page(read_run(folder))
    assert html.index("Warning: ct_east, round 2.") < html.index("Result at each site")
    assert "lower unsupervised_learning_rate" in html


def test_a_site_that_keeps_the_scores_of_its_few_cases_is_named():
    run = SimpleNamespace(result={"test": {"b": {"n_cases": 0, "min_cases": 5}, "a": {"n_cases": 7}}})
    assert few_cases_notes(run) == [
        "Not shown: the test scores of b, which has fewer test cases than the 5 from which on it lets them leave "
        "(privacy.min_cases)."
    ]


def clipped_run(fake_run, bound=5.0, records=RECORDS):
    change_rounds(folder := fake_run(rounds=3), lambda place, _: records[place])
    change(folder, "run", config={"study": {"clip_norm": bound}})
    return read_run(folder)


def test_who_was_cut_and_the_norms_are_on_the_page(fake_run):
    run = clipped_run(fake_run)
    north, south, east = clip_rows(run)
    assert north == ["ct_north", "40", "overflow", "2 of 3 rounds", "0 %"]
    assert south == ["ct_south", "2.5", "3", "0 of 3 rounds", "–"] and east[3] == "0 of 1 round"
    assert clip_note(run) == "The server cuts every update to a norm of 5 (clip_norm). That happened to ct_north."
    html = page(run)
    assert clip_note(run) in html and '<td class="n">2 of 3 rounds</td>' in html


def test_a_bound_that_nobody_met_is_said_and_no_bound_is_not(fake_run):
    kept = [{**record, "clipped": {}} for record in RECORDS]
    assert clip_note(clipped_run(fake_run, records=kept)).endswith("No update was longer.")
    assert clip_note(read_run(fake_run(rounds=1))) == "" and "clip_norm)" not in page(read_run(fake_run(rounds=1)))


def test_a_finished_round_names_who_was_cut(tmp_path):
    path = tmp_path / "server/simulate_job/fedmed/rounds.jsonl"
    follower = Follower(tmp_path, "job", ["b"])
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"round": 0, "clipped": {"b": 0.125}}) + "\n")
    assert "cut b to 12.5 %" in follower.poll()[0]
