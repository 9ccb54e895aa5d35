"""Runs whose result is the mean of the last rounds' models."""

import json

import pytest
import torch

from fedmed.durable_files import load_tensors
from fedmed.errors import UpdateRefused
from fedmed.recovery.checkpoint import Checkpoints
from fedmed.recovery.model_store import BEST, LAST
from tests.federation.run_folder import same
from tests.recovery.small_federation import ROUNDS, Death, Killed, Run

pytestmark = pytest.mark.usefixtures("quick")
MEAN = {"select": "mean", "mean_rounds": 3, "warm_start": {"rounds": 1}}


def files(run, job="job-1"):
    app = run.folder(job).parent / "app_server"
    result = json.loads((run.folder(job) / "result.json").read_text())
    return {name: load_tensors(app / name) for name in (LAST, BEST)}, result


def test_the_result_is_the_mean_of_what_the_rounds_left(tmp_path):
    left = {rounds: Run(tmp_path / str(rounds), **MEAN | {"rounds": rounds}) for rounds in (4, 5, 6)}
    models = [run.play("job-1").newest.models[rounds - 1] for rounds, run in left.items()]
    kept, result = files(left[6])
    for name in ("encoder.w", "decoder.w"):
        mean = torch.stack([model[name].double() for model in models]).mean(dim=0).float()
        assert torch.equal(kept[BEST]["model"][name], mean) and not torch.equal(mean, kept[LAST]["model"][name])
    assert kept[BEST]["meta"] == {"round": 5, "score": result["best_score"]}
    assert result["mean_of"] == [3, 4, 5] and result["best_round"] == 5
    assert result["best_score"] == pytest.approx(sum(result["validation"].values()) / 2), "the mean's own score"
    assert result["last_score"] is None and result["validation_last"] == {}, "nobody scored the last aggregate"


def test_every_kill_of_the_server_leads_to_the_same_mean(tmp_path, monkeypatch, whole):
    expected = whole(**MEAN)
    death, at = Death(monkeypatch), 0
    while True:
        at += 3
        run = Run(tmp_path / str(at), **MEAN)
        death.set(at)
        job = go_on_once(run, death)
        assert same(run.outcome(job), expected), f"killed at change {at}"
        if job == "job-1":
            break
    assert at > 8 * ROUNDS


def go_on_once(run, death):
    """Play until the kill, then without another one."""
    try:
        run.play("job-1")
    except Killed:
        death.set(0)
        resume = {"resume": "job-1"} if Checkpoints(run.folder("job-1")).rounds else {}
        run.play("job-2", **resume)
        return "job-2"
    return "job-1"


def test_a_round_that_failed_is_not_part_of_it(tmp_path):
    def spoil(update):
        if update.round == 3:
            raise UpdateRefused(update.site, "broken")
        return update

    run = Run(tmp_path, spoil=spoil, **MEAN)
    server = run.play("job-1")
    assert files(run)[1]["mean_of"] == [1, 2, 4] and server.selection.best_private == dict.fromkeys("abu", 4)


def test_the_state_keeps_the_models_that_it_needs_and_no_more(broken):
    kept = Checkpoints(broken(**MEAN, round=4).folder("job-1"))
    assert list(kept.read().newest) == [1, 2, 3] and kept.read().selection.best_round is None
    names = [f"round_{round}.pt" for round in range(4)]  # the first one is of the state before
    assert sorted(path.name for path in kept.models.iterdir()) == names
