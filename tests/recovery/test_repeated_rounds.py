"""Rounds and updates that failed leave nothing behind when a run goes on."""

import pytest
import torch

from fedmed.errors import FedMedError, UpdateRefused
from fedmed.recovery.checkpoint import Checkpoints
from tests.federation.run_folder import same
from tests.recovery.small_federation import PARTIAL, STATEFUL, Killed, Run, end_at

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize("refused", [0, 2, 3])
def test_a_site_whose_last_update_was_refused_goes_on_from_the_one_before(tmp_path, monkeypatch, whole, refused):
    def spoil(update):
        if (update.site, update.round) == ("b", refused):
            update.tensors["encoder.w"] = torch.full((2,), float("nan"))
        return update

    plan = {"min_clients": 1, "warm_start": {"rounds": 1, "sharing": "full"}}
    expected = whole(PARTIAL, spoil, **plan)
    run = Run(tmp_path / "ws", PARTIAL, spoil, **plan)
    for job, round in (("job-1", refused + 1), ("job-2", 4)):
        resume = {"resume": "job-1"} if job == "job-2" else {}
        with monkeypatch.context() as patch:
            end_at(patch, round)
            with pytest.raises(Killed):
                run.play(job, **resume)
    assert run.folder("job-1", "b").joinpath(f"state/round_{refused}.pt").is_file(), "it was trained, and not taken"
    run.play("job-3", resume="job-2")
    assert same(run.outcome("job-3"), expected)


def test_rounds_that_failed_at_the_end_are_repeated(tmp_path, whole):
    sick = {2, 3}

    def spoil(update):
        if update.round in sick and update.site != "a":
            raise UpdateRefused(update.site, "broken")
        return update

    run = Run(tmp_path / "ws", spoil=spoil)
    with pytest.raises(FedMedError, match="round 3: 1 of 3 updates accepted"):
        run.play("job-1")
    state = Checkpoints(run.folder("job-1"))
    assert state.read().round == 1 and state.read().selection.best_round is not None
    sick.clear()
    run.play("job-2", resume="job-1")
    assert same(run.outcome("job-2"), whole())


def test_the_state_of_a_rule_outlives_rounds_that_failed(tmp_path, whole):
    """Round 2 fails and is repeated by the job that resumes: the rule must be as it was after round 1."""
    sick = {2, 3}

    def spoil(update):
        if update.round in sick and update.site == "u":
            raise UpdateRefused("u", "broken")
        return update

    run = Run(tmp_path / "ws", STATEFUL, spoil)
    with pytest.raises(FedMedError, match="round 3: 2 of 3 updates accepted"):
        run.play("job-1")
    kept = Checkpoints(run.folder("job-1"))
    assert kept.rounds == [1, 0] and kept.read().rule["state"]["rounds"] == 2
    sick.clear()
    run.play("job-2", resume="job-1")
    assert same(run.outcome("job-2"), whole(STATEFUL))
