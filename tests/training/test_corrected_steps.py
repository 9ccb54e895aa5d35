"""Corrections of a site's gradients: what they see, in every engine and under mixed precision, and what they keep."""

import copy

import pytest
import torch
from torch import nn

from fedmed.data.augment import ScaleShift
from fedmed.errors import BundleError, JobError, StateError
from fedmed.losses.dice import SoftDiceLoss
from fedmed.systems.covid_fssl.engine import ConsistencyEngine
from fedmed.systems.covid_fssl.loss import ConsistencyLoss
from fedmed.systems.fedmoco.linear_probe import LinearProbeEngine
from fedmed.training.corrected_steps import Corrections
from fedmed.training.corrections.correction import Correction
from fedmed.training.trainer import SupervisedEngine

from .conftest import equal


class Proximal(Correction):
    """FedProx (Li et al. 2020): the gradient of ``μ/2 ‖ω - ω_t‖²``; notes all that it sees."""

    takes = ("hint",)

    def __init__(self, mu):
        self.mu, self.seen, self.starts, self.steps, self.done = mu, [], [], 0, 0

    def begin(self, start):
        self.starts.append(start)

    def before_step(self, parameters):
        self.seen.append({name: None if p.grad is None else p.grad.clone() for name, p in parameters.items()})
        for name, parameter in parameters.items():
            if parameter.grad is not None and name in self.starts[-1].received:
                parameter.grad.add_(parameter - self.starts[-1].received[name], alpha=self.mu)

    def after_step(self, parameters):
        self.steps += 1

    def end(self, parameters):
        self.done += 1

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state_dict):
        self.steps = state_dict["steps"]

    def extras(self):
        return {"steps": float(self.steps)}


class Doubled(Correction):
    """Doubles the gradients."""

    def before_step(self, parameters):
        for parameter in parameters.values():
            if parameter.grad is not None:
                parameter.grad.mul_(2)


def supervised(network, loader, optimizer=None, **changes):
    optimizer = optimizer or torch.optim.SGD(network.parameters(), lr=0.5)
    return SupervisedEngine("cpu", 1, loader, network, optimizer, SoftDiceLoss(), **changes)


def attach(items, engine, received=None, shared=(), **facts):
    corrections = Corrections(items)
    names = list(engine.network.state_dict()) if received is None else received
    corrections.attach(engine, names, shared, **facts)
    return corrections


def test_without_corrections_nothing_is_added_and_one_of_nothing_changes_no_bit(network, twin, labeled):
    engine, plain = supervised(network, labeled), supervised(twin, labeled)
    corrections = attach([], plain)
    assert engine._event_handlers.keys() == plain._event_handlers.keys()
    attach([Proximal(0.0), Correction()], engine)
    for each in (engine, plain):
        each.run()
    assert equal(network, twin) and corrections.kept_with(plain.state_dict()) == {} and corrections.extras() == {}


def test_equals_a_plain_loop_in_the_order_of_the_list(network, twin, labeled):
    engine = supervised(network, labeled)
    attach([Proximal(0.3), Doubled()], engine)
    engine.run()
    received = copy.deepcopy(dict(twin.named_parameters()))
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.5)
    for batch in labeled:
        optimizer.zero_grad()
        SoftDiceLoss()(twin(batch["image"]), batch["label"]).backward()
        with torch.no_grad():
            for name, parameter in twin.named_parameters():
                parameter.grad.add_(parameter - received[name], alpha=0.3).mul_(2)
        optimizer.step()
    assert equal(network, twin)


def test_it_is_told_what_came_what_is_shared_and_when(network, labeled):
    before = copy.deepcopy(network.state_dict())
    names, item = list(before), Proximal(0.0)
    engine = supervised(network, labeled)
    corrections = Corrections([item, Correction()])
    assert corrections.receive({"hint": 3, "others": [1]}) == {"others": [1]}
    facts = {"round": 2, "rounds": 9, "steps": 3, "steps_before": 6, "steps_total": 27}
    corrections.attach(engine, names[:3], names[:2], **facts)
    engine.run()
    (start,) = item.starts
    assert list(start.received) == names[:3] and start.shared == set(names[:2]) and start.values == {"hint": 3}
    assert all(torch.equal(start.received[name], before[name]) for name in names[:3]), "as received, not as trained"
    assert {name: getattr(start, name) for name in facts} == facts
    assert (item.steps, item.done, corrections.extras()) == (3, 1, {"steps": 3.0})
    engine.run()
    assert item.steps == 6 and len(item.seen) == 6, "hooks of the first run are gone"


def test_in_the_consistency_engine(undecided, unlabeled):
    engine = ConsistencyEngine("cpu", 1, unlabeled, undecided, torch.optim.Adam(undecided.parameters(), lr=1e-2),
                               ScaleShift(seed=5), consistency_loss=ConsistencyLoss(threshold=0.5))  # fmt: skip
    item = Proximal(0.1)
    attach([item], engine)
    engine.run()
    assert item.steps == len(item.seen) == 4 and any(grad.any() for grad in item.seen[0].values())


def test_an_engine_that_takes_other_steps_is_refused():
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.classifier = nn.Linear(1, 2)

    network = Classifier()
    engine = LinearProbeEngine("cpu", 1, [], network, None, nn.CrossEntropyLoss(), epoch_length=1)
    with pytest.raises(
        JobError, match="LinearProbeEngine does not train by the bundle's optimizer.*leave that overlay"
    ):
        attach([Proximal(0.1)], engine)
    attach([], engine)


@pytest.mark.filterwarnings("ignore:CUDA is not available")
@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused optimizer"])
def test_gradients_are_unscaled_under_mixed_precision(network, twin, labeled, cpu_scaler, fused):
    """A fused optimizer would divide the scale out itself, within its step, so after the correction."""
    cpu_scaler(init_scale=1024.0)
    seen = []
    for net, amp in ((network, True), (twin, False)):
        engine = supervised(net, labeled[:1], torch.optim.Adam(net.parameters(), lr=1e-2, fused=fused))
        engine.amp, item = amp, Proximal(0.5)
        attach([item], engine)
        engine.run()
        assert item.steps == 1 and (engine.scaler is not None) == amp
        seen += item.seen
    # autocast to bfloat16 on some machines changes digits, a scale of 1024 would change all
    for name, grad in seen[0].items():
        assert torch.allclose(grad, seen[1][name], rtol=0.1, atol=1e-4), name
    assert any(grad.any() for grad in seen[0].values())


@pytest.mark.filterwarnings("ignore:CUDA is not available")
@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused optimizer"])
def test_a_step_that_overflowed_is_not_corrected(network, labeled, cpu_scaler, fused):
    cpu_scaler(init_scale=1024.0)
    before = copy.deepcopy(dict(network.named_parameters()))
    engine, item = supervised(network, labeled[:1], torch.optim.Adam(network.parameters(), fused=fused)), Proximal(0.5)
    engine.amp, engine.loss_function = True, lambda p, y: p.mean() * torch.inf
    attach([item], engine)
    engine.run()
    assert item.steps == 0 and not item.seen and item.done == 1
    assert all(torch.equal(p, before[name]) for name, p in network.named_parameters())


def test_the_state_travels_with_the_engines(network, labeled):
    item, again = Proximal(0.1), Proximal(0.1)
    engine = supervised(network, labeled)
    corrections = attach([item, Doubled()], engine)
    engine.run()
    kept = corrections.kept_with({"scaler": {"scale": 2.0}})
    assert kept["scaler"] == {"scale": 2.0}
    engine.load_state_dict(kept)
    Corrections([again, Doubled()]).load_state_dict(kept)
    assert again.steps == 3
    fresh = Proximal(0.1)
    Corrections([fresh]).load_state_dict({"scaler": {}})
    assert fresh.steps == 0
    with pytest.raises(StateError, match="Proximal.*Doubled.*this job's are .*Proximal"):
        Corrections([again]).load_state_dict(kept)


def test_what_is_no_correction_is_named():
    with pytest.raises(BundleError, match="'train#corrections' lists a Linear"):
        Corrections([Doubled(), nn.Linear(1, 1)])
