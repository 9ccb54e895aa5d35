"""A run that goes on in another job: with what it goes on, and what it says of that."""

import json

import pytest

from fedmed.errors import StateError
from fedmed.recovery.checkpoint import CARRIED, CHECKPOINTS, MODELS, Checkpoints
from tests.federation.run_folder import same
from tests.recovery.small_federation import ROUNDS, Run, Site

pytestmark = pytest.mark.usefixtures("quick")


def test_a_resumed_run_says_so_and_a_finished_one_keeps_no_state(broken):
    run = broken()
    server = run.play("job-2", resume="job-1")
    assert server.first_round == 3
    facts = json.loads((run.folder("job-2") / "run.json").read_text())
    assert facts["resumed"] == {"job-1": 3}
    assert not (run.folder("job-2") / CHECKPOINTS).exists() and not (run.folder("job-2") / MODELS).exists()
    assert Checkpoints(run.folder("job-1")).rounds
    result = json.loads((run.folder("job-2") / "result.json").read_text())
    lines = [json.loads(line) for line in (run.folder("job-2") / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(ROUNDS))
    assert result["seconds_total"] > sum(line["seconds"] for line in lines[:3])


def test_more_rounds_than_before(broken, tmp_path):
    run = broken()
    run.play("job-2", resume="job-1", rounds=7)
    longer = Run(tmp_path / "longer", rounds=7)
    longer.play("job-1")
    assert same(run.outcome("job-2"), longer.outcome("job-1"))


def test_a_state_may_come_with_the_job(broken, tmp_path):
    run = broken()
    app = run.folder("job-2").parent / "app_server"
    app.mkdir(parents=True)
    run.folder("job-1").rename(app / CARRIED)
    run.play("job-2", resume="job-1")
    assert (run.folder("job-2") / "result.json").is_file()


def test_a_site_without_its_state_is_named_and_may_start_afresh(broken, caplog):
    run = broken(sharing="head", min_clients=2)
    for path in (run.folder("job-1", "b") / "state").iterdir():
        path.unlink()
    with pytest.raises(StateError, match="round 2 cannot be read.*job-1/fedmed/state: put that folder back.*--allow-f"):
        site = Site("b", run.folder("job-2", "b"), None)
        site.state.earlier = {"job-1": 3}
        site.state.load(2)
    server = run.play("job-2", resume="job-1", fresh=["b"])
    assert "the choice of a model starts anew" in caplog.text and "b lost" in caplog.text
    lines = [json.loads(line) for line in (run.folder("job-2") / "rounds.jsonl").read_text().splitlines()]
    assert all(line["accepted"] == ["a", "b", "u"] for line in lines)
    assert server.selection.best_round >= 2


def test_a_site_that_starts_afresh_keeps_the_choice_where_nothing_is_private(broken):
    run = broken()
    best = Checkpoints(run.folder("job-1")).read().selection.best_round
    server = run.play("job-2", resume="job-1", fresh=["b"], rounds=4)
    assert server.last_round["b"] == 3 and server.selection.best_round is not None and best is not None


def test_a_new_run_in_a_used_folder_forgets_the_old_state(tmp_path, broken):
    run = broken()
    (run.folder("job-1") / "rounds.jsonl").unlink()
    run.play("job-1")
    assert not (run.folder("job-1") / CHECKPOINTS).exists()


def test_a_run_that_would_have_ended_may_get_more_patience(broken):
    run = broken(rounds=12, patience=1, round=2)
    assert run.play("job-2", resume="job-1", patience=11).rounds == 12
