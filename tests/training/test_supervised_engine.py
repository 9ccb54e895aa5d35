import pytest
import torch
from monai.data import MetaTensor

from fedmed.errors import JobError
from fedmed.losses.dice import SoftDiceLoss
from fedmed.training.trainer import SupervisedEngine

from .conftest import equal


def build(network, loader, **changes):
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    return SupervisedEngine("cpu", 1, loader, network, optimizer, SoftDiceLoss(), **changes)


def test_equals_a_plain_loop(network, twin, labeled):
    build(network, labeled).run()
    optimizer = torch.optim.Adam(twin.parameters(), lr=1e-2)
    for batch in labeled:
        optimizer.zero_grad()
        SoftDiceLoss()(twin(batch["image"]), batch["label"]).backward()
        optimizer.step()
    assert equal(network, twin)


def test_runs_exactly_the_steps_asked_for(network, labeled):
    engine = build(network, labeled, epoch_length=2)
    engine.run()
    assert engine.state.iteration == len(network.passes) == 2


def test_an_engine_without_exchange_sends_nothing_and_takes_nothing(network):
    engine = build(network, [])
    engine.receive({})
    assert engine.extras() == {}
    with pytest.raises(JobError, match="SupervisedEngine has no use for others.*'exchange'"):
        engine.receive({"others": []})


def test_metadata_does_not_reach_the_network(network, labeled):
    batch = {key: MetaTensor(value) for key, value in labeled[0].items()}
    engine = build(network, [batch])
    engine.run()
    assert network.passes == [("train", True, "Tensor")]
    assert type(engine.state.output["loss"]) is torch.Tensor


def test_no_mixed_precision_and_no_state_on_a_cpu(network, labeled):
    engine = build(network, labeled, amp=True)
    engine.load_state_dict({})
    engine.load_state_dict({"scaler": {"scale": 8.0}})  # of a site that has trained on a GPU before
    engine.run()
    assert not engine.amp
    assert engine.state_dict() == {}


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_scaler_is_kept_across_runs_and_travels_in_the_state(network, twin, labeled, cpu_scaler):
    cpu_scaler(growth_interval=2)
    first = build(network, labeled[:2])
    first.amp = True
    first.run()
    scaler = first.scaler
    state = first.state_dict()
    assert state["scaler"]["scale"] == 2 * 65536  # grew after two good steps

    second = build(network, labeled[:1])
    second.amp = True
    second.load_state_dict(state)
    second.run()
    assert second.scaler.get_scale() == scaler.get_scale()
    assert second.state_dict()["scaler"]["_growth_tracker"] == 1
    second.run()
    assert second.scaler is second._kept_scaler()

    build(twin, labeled[:2]).run()
    plain = build(twin, labeled[:1])
    plain.run()
    plain.run()
    assert equal(network, twin)  # a scale that is a power of two changes no bit


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_mixed_precision_on_a_gpu(network, labeled):
    network.cuda()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    engine = SupervisedEngine("cuda", 1, labeled * 10, network, optimizer, SoftDiceLoss(), amp=True)
    engine.run()
    assert engine.state.output["loss"].isfinite()
    assert engine.state_dict()["scaler"]["scale"] > 0
