"""A run whose server has an optimizer ends, resumed after any round, where an uninterrupted one does."""

import pytest
import torch
from small_federation import PARTIAL, ROUNDS, same

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import JobError, StateError
from fedmed.recovery.server_state import RULE

pytestmark = pytest.mark.usefixtures("quick")
STEPS = [{"by": "sgd", "rate": 0.5, "momentum": 0.9}, "adam", "adamw", "yogi"]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step if isinstance(step, str) else step["by"])
@pytest.mark.parametrize("round", range(1, ROUNDS))
def test_resumed_after_any_round(step, round, whole, broken):
    aggregator = {**PARTIAL, "step": step}
    run = broken(aggregator, round=round, warm_start_rounds=1)
    run.play("job-2", resume="job-1")
    assert same(run.outcome("job-2"), whole(aggregator, warm_start_rounds=1))


def test_the_moments_decide(whole):
    assert not same(whole({"step": "adam"})[0], whole({"step": "yogi"})[0])


def test_another_optimizer_is_another_run(broken):
    run = broken({"step": "adam"})
    run.aggregator = {"step": "adamw"}
    with pytest.raises(JobError, match="aggregator argument 'step' is 'adamw', it was 'adam'"):
        run.play("job-2", resume="job-1")


def test_a_state_of_another_network_is_one_clear_error_before_the_first_round(broken):
    run = broken({"step": "adam"})
    path = max((run.folder("job-1") / RULE).iterdir())
    content = load_tensors(path)
    content["network"]["encoder.w"] = "float32 (3,)"
    content["state"]["step"]["encoder.w"]["first"] = torch.zeros(3, dtype=torch.float64)
    save_tensors(path, content)
    with pytest.raises(StateError, match=r"for another network: tensor 'encoder.w' is float32 \(3,\) there and"):
        run.play("job-2", resume="job-1")
