"""A job that would make another run of the one that it continues is refused."""

import pytest
from small_federation import SITES, STATEFUL, Run, Store

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import FedMedError, JobError, StateError
from fedmed.recovery.server_state import STATE, ServerState

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"steps": 3}, "controller argument 'steps' is 3, it was 2"),
        ({"sites": {**SITES, "u": "supervised"}}, "argument 'sites'"),
        ({"sites": {**SITES, "new": "supervised"}}, "argument 'sites'"),
        ({"warm_start_rounds": 1}, "'warm_start_rounds'"),
        ({"rounds": 2}, "has 3 rounds; 'rounds' is 2, ask for more"),
        ({"resume": "../job-1"}, "is not the id of a job"),
        ({"resume": "/tmp/job-1"}, "is not the id of a job"),
        ({"resume": "job-7"}, "state of job 'job-7' is not at this server"),
    ],
)
def test_a_job_that_would_make_another_run_of_it_is_refused(broken, plan, message):
    run = broken()
    before = (run.folder("job-1") / STATE).read_bytes()
    with pytest.raises(FedMedError, match=message):
        run.play("job-2", **{"resume": "job-1", **plan})
    assert (run.folder("job-1") / STATE).read_bytes() == before


def test_another_bundle_or_rule_is_refused(broken, monkeypatch):
    run = broken()
    run.aggregator = {"user_weights": {"u": 2.0}}
    with pytest.raises(JobError, match="aggregator argument 'user_weights'"):
        run.play("job-2", resume="job-1")
    run.aggregator = {}
    monkeypatch.setattr(Store, "describe", lambda self: {"digest": "d2"})
    with pytest.raises(JobError, match="model argument 'digest' is 'd2', it was 'd1'.*same version of the bundle"):
        run.play("job-2", resume="job-1")


def test_the_state_of_another_rule_or_network_is_refused(broken):
    run = broken(STATEFUL)
    run.aggregator = {"rule": {**STATEFUL["rule"], "args": {"beta": 0.25}}}
    with pytest.raises(JobError, match="aggregator argument 'rule' is .*0.25.*, it was .*0.5"):
        run.play("job-2", resume="job-1")
    run.aggregator = STATEFUL
    state = ServerState(run.folder("job-1"))
    state.before_path.unlink()  # else the run goes back to it
    path = state.rule_path(2)
    content = load_tensors(path)
    for change, message in (
        ({"rule": "somewhere.Else"}, "is of the rule somewhere.Else, this job's rule is momentum_rule.ServerMomentum"),
        ({"network": {**content["network"], "encoder.w": "float32 (3,)"}}, "another network: tensor 'encoder.w'"),
        ({"meta": {"round": 1}}, "round_2.pt is of another round"),
        ({"for_roles": {"supervised": {}}}, "does not fit this job"),
    ):
        save_tensors(path, {**content, **change})
        with pytest.raises(StateError, match=message):
            run.play("job-2", resume="job-1")
    path.unlink()
    with pytest.raises(StateError, match="round_2.pt does not exist"):
        run.play("job-2", resume="job-1")


def test_who_is_waited_for_may_change(broken):
    run = broken()
    run.play("job-2", resume="job-1", min_clients=2, task_timeout=60, max_failed_rounds=5)


def test_a_finished_run_is_not_resumed(tmp_path):
    run = Run(tmp_path)
    run.play("job-1")
    with pytest.raises(StateError, match="'job-1' was finished"):
        run.play("job-2", resume="job-1")
