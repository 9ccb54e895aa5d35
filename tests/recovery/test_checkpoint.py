"""Killed at any write, a run goes on from a whole state and ends where an uninterrupted one does."""

import errno
import os
import random

import pytest
import torch

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import FedMedError, StateError
from fedmed.recovery.checkpoint import EARLIER, Checkpoints
from tests.federation.run_folder import same, spoil
from tests.recovery.small_federation import MODEL, PARTIAL, SITES, STATEFUL, Death, Killed, Run, end_at

pytestmark = pytest.mark.usefixtures("quick")


def outcome_after_all(run):
    """Outcome of the run, continued if it has no result."""
    done = run.folder("job-1") / "result.json"
    return run.outcome("job-1" if done.is_file() else run.go_on(first=2))


def test_killed_at_any_write_a_run_still_ends_the_same(tmp_path, monkeypatch, whole):
    """With a rule that has a state, and private layers after a warm start; the tests below kill runs without them."""
    study = {**PARTIAL, **STATEFUL, "rounds": 3, "warm_start": {"rounds": 1, "sharing": "full"}}
    expected, death = whole(study), Death(monkeypatch)
    for at in range(1, 1000):
        run = Run(tmp_path / f"at{at}", study)
        death.set(at)
        try:
            run.play("job-1")
        except Killed:
            death.set(0)
            state = Checkpoints(run.folder("job-1"))
            if state.rounds:
                known = state.read()
                assert all(state.read_model(round) for round in known.models)
                assert known.rule
                assert len(state.read_rounds(known.round)) == known.round + 1
            assert same(outcome_after_all(run), expected), at
        else:
            break
    assert at > 20, "the run was hardly ever interrupted"


def test_killed_again_and_again(tmp_path, monkeypatch, whole):
    expected, death = whole(PARTIAL), Death(monkeypatch)
    dice = random.Random(0)
    for number in range(8):
        run, job = Run(tmp_path / str(number), PARTIAL), None
        for attempt in range(1, 100):
            death.set(dice.randint(5, 40))
            jobs = [f"job-{n}" for n in range(attempt - 1, 0, -1) if Checkpoints(run.folder(f"job-{n}")).rounds]
            try:
                run.play(job := f"job-{attempt}", **({"resume": jobs[0]} if jobs else {}))
                break
            except Killed:
                if (run.folder(job) / "result.json").is_file():
                    break
        assert attempt > 1 and same(run.outcome(job), expected), (number, attempt)


def test_a_run_that_ends_early_does_so_after_any_kill(tmp_path, monkeypatch, whole):
    """Scores here are as good as random, so that two models without a better score come soon."""
    plan = {"rounds": 12, "patience": 2, "min_rounds": 3}
    expected, death = whole(**plan), Death(monkeypatch)
    result, lines = expected[-1], expected[-2]
    assert 3 <= len(lines) < 12 and result["stopped_early"]["rounds"] == len(lines)
    assert "the last 2 models in a row were not better" in result["stopped_early"]["reason"]
    scores = [line["score"] for line in lines]
    assert max(scores) not in scores[-2:] and set(result["test"]) == set(SITES) and result["validation_last"]
    for at in range(1, 1000, 4):
        run = Run(tmp_path / f"at{at}", **plan)
        death.set(at)
        try:
            run.play("job-1")
        except Killed:
            death.set(0)
            assert same(outcome_after_all(run), expected), at
        else:
            break
    assert at > 30, "the run was hardly ever interrupted"


@pytest.mark.parametrize("damage", ["flipped", "cut", "rubbish"])
@pytest.mark.parametrize("file", ["checkpoint", "model"])
def test_a_damaged_file_is_named_and_the_run_goes_back_a_round(broken, whole, caplog, file, damage):
    plan = {"warm_start": {"rounds": 2}}
    run, expected = broken(STATEFUL, **plan), whole(STATEFUL, **plan)
    state = Checkpoints(run.folder("job-1"))
    path = {"checkpoint": state.path(2), "model": state.model_path(2)}[file]
    spoil(path, damage)
    server = run.play("job-2", resume="job-1")
    assert server.first_round == 2 and str(path) in caplog.text and "goes back to its round 1" in caplog.text
    assert same(run.outcome("job-2"), expected)


def test_a_model_of_another_round_is_not_taken(broken, whole):
    run, expected = broken(), whole()
    state = Checkpoints(run.folder("job-1"))
    save_tensors(state.model_path(2), {"model": MODEL, "meta": {"round": 1}})
    assert run.play("job-2", resume="job-1").first_round == 2
    assert same(run.outcome("job-2"), expected)


def test_where_both_rounds_are_damaged_both_files_are_named(broken):
    run = broken()
    state = Checkpoints(run.folder("job-1"))
    spoil(state.path(2))
    spoil(state.model_path(1))
    with pytest.raises(StateError, match=r"round_2\.pt is damaged.*round before: .*models/round_1\.pt is damaged"):
        run.play("job-2", resume="job-1")


def test_without_a_state_before_the_damaged_file_is_named(broken):
    run = broken(round=1)
    state = Checkpoints(run.folder("job-1"))
    spoil(state.model_path(0))
    with pytest.raises(StateError, match=r"round_0\.pt is damaged.*No checkpoint of an earlier round is kept"):
        run.play("job-2", resume="job-1")


def test_killed_while_it_trained_on_the_run_can_still_go_back(tmp_path, monkeypatch, whole):
    """Sites have begun the next round by then, and dropped what the states at the server do not name."""
    expected, death = whole(PARTIAL), Death(monkeypatch)
    gone_back = 0
    for at in range(1, 1000, 3):
        run = Run(tmp_path / f"at{at}", PARTIAL)
        death.set(at)
        try:
            run.play("job-1")
        except Killed:
            death.set(0)
            state = Checkpoints(run.folder("job-1"))
            if (run.folder("job-1") / "result.json").is_file() or len(state.rounds) < 2:
                continue
            spoil(state.path(last := state.rounds[0]))
            gone_back += run.play("job-2", resume="job-1").first_round == last
            assert same(run.outcome("job-2"), expected), at
        else:
            break
    assert gone_back > 5


def test_a_checkpoint_of_another_fedmed_is_told_and_one_without_digests_is_read(broken, whole):
    run, expected = broken(), whole()
    state = Checkpoints(run.folder("job-1"))
    path, content = state.path(2), load_tensors(state.path(2))
    state.path(1).unlink()
    for other in (path, state.model_path(2), *run.root.glob("*/job-1/fedmed/state/round_2.pt")):
        torch.save(load_tensors(other), other)
    run.play("job-2", resume="job-1")
    assert same(run.outcome("job-2"), expected)
    save_tensors(path, {**content, "format": 3})
    with pytest.raises(StateError, match="another version of FedMed"):
        run.play("job-3", resume="job-1")
    state.remove()
    (state.folder / EARLIER).touch()
    with pytest.raises(StateError, match=f"{EARLIER} was written by another version of FedMed; continue with that"):
        run.play("job-3", resume="job-1")


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("server", {"round": "../../secret"}),
        ("server", {"round": -1}),
        ("selection", {"best_model": "../../secret"}),
        ("selection", {"best_model": 9}),
        ("server", {"last_round": {"a": "../../secret"}}),
        ("server", {"last_round": {"a": 7}}),
        ("selection", {"best_private": {"a": [1]}}),
        ("server", {"earlier": {"../job": 1}}),
        ("server", {"earlier": {"job": "1"}}),
        ("server", {"last_round": 3}),
        ("rule", {"rule": "../../secret"}),
        ("rule", {"rule": 3, "state": {}, "for_roles": {}, "values": {}, "training": {}}),
        ("rule", {"rule": "x.Y", "state": None, "for_roles": {}, "values": {}, "training": {}}),
        ("rule", {"rule": "x.Y", "state": {}, "for_roles": {}, "values": 1, "training": {}}),
        ("stopping", {"waited": "../../secret"}),
    ],
)
def test_no_path_arrives_in_a_checkpoint_that_a_job_brings(broken, part, change):
    state = Checkpoints(broken().folder("job-1"))
    content = load_tensors(state.path(2))
    save_tensors(state.path(2), {**content, part: {**content[part], **change}})
    with pytest.raises(StateError, match=rf"round_2.pt cannot be read: {part}|it speaks of rounds after"):
        state.read()


def test_a_full_disk_at_the_server_ends_in_plain_words_and_the_run_goes_on_later(tmp_path, monkeypatch, whole):
    plan = {"rounds": 3}
    expected = whole(**plan)
    full = Death(monkeypatch, error=OSError(errno.ENOSPC, "No space left on device"))
    seen = set()
    for at in range(1, 200):
        run = Run(tmp_path / f"at{at}", **plan)
        full.set(at)
        try:
            run.play("job-1")
        except FedMedError as error:
            full.set(0)
            seen.add(type(error).__name__)
            assert "free space" in str(error).lower() or "needed; the model is unchanged" in str(error)
            assert same(outcome_after_all(run), expected), at
        else:
            break
    assert at > 25 and "StateError" in seen


def test_without_links_models_are_copied(tmp_path, monkeypatch, whole):
    expected = whole()
    monkeypatch.setattr(os, "link", lambda *a: (_ for _ in ()).throw(OSError(errno.EPERM, "not permitted")))
    run = Run(tmp_path / "ws")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        end_at(patch, 3)
        run.play("job-1")
    run.play("job-2", resume="job-1")
    assert same(run.outcome("job-2"), expected)
