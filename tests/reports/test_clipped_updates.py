"""Report of a server that bounds updates: their lengths, and the sites whose were cut."""

import json

from fedmed.reports.live import Follower
from fedmed.reports.notes import clip_note, clip_rows
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from tests.reports.records import change, change_rounds

RECORDS = [
    {"norms": {"ct_north": 4.0, "ct_south": 2.0}, "clipped": {}},
    {"norms": {"ct_north": 40.0, "ct_south": 2.5}, "clipped": {"ct_north": 0.125}},
    {"norms": {"ct_north": None, "ct_south": 3.0, "ct_east": 1.0}, "clipped": {"ct_north": 0.0}},
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
