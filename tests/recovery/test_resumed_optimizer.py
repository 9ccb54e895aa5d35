"""A run whose server has an optimizer ends, resumed after any round, where an uninterrupted one does."""

import pytest
import torch

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import JobError, StateError
from fedmed.recovery.checkpoint import Checkpoints
from tests.federation.run_folder import same
from tests.recovery.small_federation import PARTIAL, ROUNDS

pytestmark = pytest.mark.usefixtures("quick")
STEPS = [{"by": "sgd", "rate": 0.5, "momentum": 0.9}, "adam", "adamw", "yogi"]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step if isinstance(step, str) else step["by"])
def test_resumed_after_any_round(step, whole, broken):
    study = {**PARTIAL, "server_step": step, "warm_start": {"rounds": 1, "sharing": "full"}}
    expected = whole(study)
    for round in range(1, ROUNDS):
        run = broken(study, round=round)
        run.play("job-2", resume="job-1")
        assert same(run.outcome("job-2"), expected), round


def test_the_moments_decide(whole):
    assert not same(whole({"server_step": "adam"})[0], whole({"server_step": "yogi"})[0])


def test_another_optimizer_is_another_run(broken):
    run = broken({"server_step": "adam"})
    with pytest.raises(JobError, match="'server_step' of its study is 'adamw', it was 'adam'"):
        run.play("job-2", resume="job-1", server_step="adamw")


def test_a_state_of_another_network_is_one_clear_error_before_the_first_round(broken):
    run = broken({"server_step": "adam"})
    path = (state := Checkpoints(run.folder("job-1"))).path(state.rounds[0])
    content = load_tensors(path)
    content["server"]["network"]["encoder.w"] = "float32 (3,)"
    content["rule"]["state"]["step"]["encoder.w"]["first"] = torch.zeros(3, dtype=torch.float64)
    save_tensors(path, content)
    with pytest.raises(StateError, match=r"of another network: tensor 'encoder.w' is float32 \(3,\) there and"):
        run.play("job-2", resume="job-1")
