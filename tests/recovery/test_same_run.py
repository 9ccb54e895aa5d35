"""A job that would make another run of the one that it continues is refused."""

import pytest

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import FedMedError, JobError, StateError
from fedmed.recovery.checkpoint import Checkpoints
from tests.recovery.small_federation import SITES, STATEFUL, Run, Store

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 3}, "'steps' of its study is 3, it was 2"),
        ({"sites": {**SITES, "u": "supervised"}}, "'sites' of its study"),
        ({"sites": {**SITES, "new": "supervised"}}, "'sites' of its study"),
        ({"warm_start": {"rounds": 1}}, "'warm_start' of its study"),
        ({"rounds": 2}, "has 3 rounds; 'rounds' is 2, ask for more"),
        ({"resume": "../job-1"}, "it must be a job's id: the name of its folder"),
        ({"resume": "/tmp/job-1"}, "it must be a job's id: the name of its folder"),
        ({"resume": "job-7"}, "state of job 'job-7' is not at this server"),
    ],
)
def test_a_job_that_would_make_another_run_of_it_is_refused(broken, changes, message):
    run = broken()
    path = Checkpoints(run.folder("job-1")).path(2)
    before = path.read_bytes()
    with pytest.raises(FedMedError, match=message):
        run.play("job-2", **{"resume": "job-1", **changes})
    assert path.read_bytes() == before


def test_another_bundle_or_rule_is_refused(broken, monkeypatch):
    run = broken()
    with pytest.raises(JobError, match="'user_weights' of its study"):
        run.play("job-2", resume="job-1", user_weights={"u": 2.0})
    monkeypatch.setattr(Store, "describe", lambda self: {"digest": "d2"})
    with pytest.raises(JobError, match="'digest' of its model is 'd2', it was 'd1'.*same version of the bundle"):
        run.play("job-2", resume="job-1")


def test_the_state_of_another_rule_or_network_is_refused(broken):
    run = broken(STATEFUL)
    other = {**STATEFUL["rule"], "args": {"beta": 0.25}}
    with pytest.raises(JobError, match="'rule' of its study is .*0.25.*, it was .*0.5"):
        run.play("job-2", resume="job-1", rule=other)
    state = Checkpoints(run.folder("job-1"))
    state.path(1).unlink()  # else the run goes back to it
    path, content = state.path(2), load_tensors(state.path(2))
    network = content["server"]["network"]
    for part, change, message in (
        ("rule", {"rule": "x.Y"}, "is of the rule x.Y, this job's rule is momentum_rule.ServerMomentum; continue with"),
        ("rule", {"for_roles": {"supervised": {}}}, "does not fit this job"),
        ("server", {"network": {**network, "encoder.w": "float32 (3,)"}}, r"tensor 'encoder.w' is float32 \(3,"),
        ("server", {"network": {**network, "x": "float32 (3,)"}}, "'x' is float32 .* there and missing here"),
        ("server", {"network": {}}, "tensor 'decoder.w' is missing there and float32"),
        ("server", {"round": 1, "last_round": {}}, "round_2.pt is of another round|speaks of rounds after its own"),
    ):
        save_tensors(path, {**content, part: {**content[part], **change}})
        with pytest.raises(StateError, match=message):
            run.play("job-2", resume="job-1")
    path.unlink()
    with pytest.raises(StateError, match="state of job 'job-1' is not at this server"):
        run.play("job-2", resume="job-1")


def test_who_is_waited_for_may_change(broken):
    run = broken()
    run.play("job-2", resume="job-1", min_clients=2, task_timeout=60, max_failed_rounds=5)


def test_a_finished_run_is_not_resumed(tmp_path):
    run = Run(tmp_path)
    run.play("job-1")
    with pytest.raises(StateError, match="'job-1' was finished"):
        run.play("job-2", resume="job-1")
