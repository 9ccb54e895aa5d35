import json

import pytest

from fedmed.reports.live import Follower, LiveSite, LiveState, Tail, last_error, render, round_line, site_line
from tests.reports.records import shown as on_screen


def add(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def event(name, task="train", round=0, **values):
    return {"time": 1.0, "event": name, "task": task, "round": round, "total_rounds": 4, **values}


def shown(state, now):
    return on_screen(render(state, now), width=140)


def site_file(folder, name):
    return folder / name / "simulate_job/fedmed/progress.jsonl"


def rounds_file(folder):
    return folder / "server/simulate_job/fedmed/rounds.jsonl"


def test_a_tail_reads_each_complete_line_once(tmp_path):
    path = tmp_path / "x.jsonl"
    tail = Tail(path)
    assert tail.poll() == []
    path.write_text('{"a": 1}\n{"a": 2')
    assert tail.poll() == [{"a": 1}]
    with path.open("a") as file:
        file.write("}\nnonsense\n[3]\n")
    assert tail.poll() == [{"a": 2}]
    assert tail.poll() == []


def test_a_file_of_an_earlier_run_is_not_read_until_it_is_replaced(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"old": 1}\n')
    tail = Tail(path)
    assert tail.poll() == []
    path.unlink()
    assert tail.poll() == []
    path.write_text('{"new": 1}\n')
    assert tail.poll() == [{"new": 1}]


def test_events_become_plain_lines_but_steps_do_not(tmp_path):
    follower = Follower(tmp_path, "job", ["a", "b"])
    add(site_file(tmp_path, "a"), event("start", steps=20), event("validated", score=0.25))
    add(site_file(tmp_path, "a"), event("step", step=10, steps=20, loss=0.5), event("end", train_loss=0.4, seconds=2.0))
    line = {"round": 0, "seconds": 6.2, "accepted": ["a"], "refused": [{"site": "b", "reason": "nan"}], "score": 0.25}
    add(rounds_file(tmp_path), line)
    assert [" ".join(text.split()) for text in follower.poll()] == [
        "round 1/4 a train starts",
        "round 1/4 a received model score 0.2500",
        "round 1/4 a train done loss 0.4000",
        "round 1/4 finished, in 6 s, accepted 1, refused b (nan), validation score of the model it began with 0.2500",
    ]
    assert follower.poll() == []


def test_what_a_site_trains_on_is_said(tmp_path):
    follower = Follower(tmp_path, "job", ["a", "b"])
    counts = {"labelled": 3, "unlabelled": 0, "labelled_patients": 3, "unlabelled_patients": 0, "listed": 88}
    add(site_file(tmp_path, "a"), event("start", steps=20), event("data", **counts, what="image"))
    add(site_file(tmp_path, "b"), event("data", **{**counts, "labelled": "\x1b[2J"}, what="image"))
    text = "trains on 3 of 88 labelled images of 3 patients"
    assert " ".join(follower.poll()[1].split()) == f"round 1/4 a {text}"
    assert f"a {text}" in shown(follower.state, 2.0) and "\x1b" not in shown(follower.state, 2.0)


def test_a_server_that_trains_is_shown_like_a_site(tmp_path):
    follower = Follower(tmp_path, "job", ["a"])
    follower.poll()
    assert "server" not in shown(follower.state, 2.0)
    add(site_file(tmp_path, "a"), event("start", steps=20), event("end", train_loss=0.4))
    add(site_file(tmp_path, "server"), event("start", steps=200), event("step", step=50, steps=200, loss=0.75))
    assert [" ".join(text.split()) for text in follower.poll()][-1] == "round 1/4 server train starts"
    page = shown(follower.state, 2.0)
    assert "server" in page and "50/200" in page and "0.750" in page
    add(site_file(tmp_path, "server"), event("end", server_loss=0.7))
    follower.poll()
    assert not follower.state.sites["server"].busy


def test_a_finished_round_is_told_before_the_next_one_starts(tmp_path):
    follower = Follower(tmp_path, "job", ["a"])
    add(site_file(tmp_path, "a"), event("end"), event("start", round=1) | {"time": 2.0})
    add(rounds_file(tmp_path), {"round": 0})
    assert [" ".join(text.split()[2:4]) for text in follower.poll()] == ["a train", "finished, in", "a train"]


def test_the_display_shows_round_site_task_step_loss_dice_and_time(tmp_path):
    follower = Follower(tmp_path, "covid_fssl", ["a", "b"])
    follower.state.started = 1000.0
    assert "starting" in shown(follower.state, 1003.0)
    add(
        site_file(tmp_path, "a"), event("start", round=1, steps=20), event("step", round=1, step=10, steps=20, loss=0.5)
    )
    add(rounds_file(tmp_path), {"round": 0, "seconds": 10.0, "accepted": ["a"], "score": 0.25})
    follower.poll(now=1010.0)
    text = shown(follower.state, 1012.0)
    for words in ("covid_fssl", "round 2 of 4", "12 s, about 28 s left", "0.250"):
        assert words in text
    for words in ("training", "10/20", "0.500", "waiting"):
        assert words in text


def test_one_of_two_runs_is_named_in_every_line_and_says_what_follows(tmp_path):
    follower = Follower(tmp_path, "job", ["a"], "control: ", "Then the end.")
    add(site_file(tmp_path, "a"), event("start", steps=20))
    add(rounds_file(tmp_path), {"round": 0, "seconds": 10.0})
    assert all(text.startswith("control: round") for text in follower.poll(now=1010.0))
    text = shown(follower.state, 1012.0)
    assert text.startswith("control") and "job" not in text and "about 28 s left" in text and "Then the end." in text


def test_time_left_in_the_first_round_comes_from_the_steps():
    state = LiveState("job", {"a": LiveSite(step=5, steps=10), "b": LiveSite()}, started=0.0, total_rounds=4)
    assert state.seconds_left(10.0) == pytest.approx(70.0)  # half of one of four rounds took 10 s
    assert LiveState("job", {"a": LiveSite()}, started=0.0).seconds_left(10.0) is None


def test_no_time_is_left_after_the_last_round():
    state = LiveState("job", {}, started=0.0, total_rounds=1)
    state.round_event({"round": 0, "seconds": 5.0, "score": 0.5}, now=5.0)
    assert state.seconds_left(100.0) == 0.0
    assert "final scores" in shown(state, 100.0)


def test_an_error_is_shown_until_the_site_starts_again(tmp_path):
    follower = Follower(tmp_path, "job", ["a"])
    add(site_file(tmp_path, "a"), event("error", message="no data at /x"))
    assert "ERROR no data at /x" in follower.poll()[0]
    assert "a: no data at /x" in shown(follower.state, 1.0)
    add(site_file(tmp_path, "a"), event("start", steps=2))
    follower.poll()
    assert "no data" not in shown(follower.state, 1.0)


def test_lines_survive_missing_values():
    assert site_line("a", {"event": "end"}, LiveState("job", {})).endswith("done")
    assert "accepted 0" in round_line({"round": 0}, LiveState("job", {}))


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("2026 - Runner - ERROR - first\n2026 - Runner - ERROR - the last one\nbye\n", "the last one"),
        ("Traceback\nfedmed.errors.SiteConfigError: no site YAML\n2026 - x - ERROR - noise\n", "no site YAML"),
        ("\x1b[31m2026 - x - CRITICAL - coloured\x1b[0m\n", "coloured"),
        ("only this\n\n", "only this"),
        ("", "NVFlare wrote nothing"),
    ],
)
def test_the_last_error_of_a_log(tmp_path, log, words):
    (tmp_path / "x.log").write_text(log)
    assert last_error(tmp_path / "x.log", LiveState("job", {"a": LiveSite()})) == words


def test_a_sites_own_message_comes_first(tmp_path):
    state = LiveState("job", {"a": LiveSite(error="mask has values 0..255")})
    assert last_error(tmp_path / "missing.log", state) == "a: mask has values 0..255"
