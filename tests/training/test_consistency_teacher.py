"""Options beyond Yang et al. 2021: the mean teacher and the ramp-up, within a round and across rounds."""

import copy
import math

import pytest
import torch
from ignite.engine import Events

from fedmed.data.augment import Augment, build_augment
from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import FedMedError, StateError
from fedmed.losses.dice import SoftDiceLoss
from fedmed.systems.covid_fssl.engine import ConsistencyEngine
from fedmed.systems.covid_fssl.loss import ConsistencyLoss
from fedmed.training.unlabelled import build_teacher

from .conftest import assert_close, equal


@pytest.fixture
def network(undecided):
    return undecided


def build(network, loader, decay=None, optimizer=None, threshold=0.5, **changes):
    optimizer = optimizer or torch.optim.Adam(network.parameters(), lr=1e-2)
    loss = ConsistencyLoss("dice_soft", "foreground", threshold)  # p itself is the target
    teacher = None if decay is None else build_teacher("ema", network, decay)
    augment = build_augment("scale_shift", seed=5)
    changes |= {"consistency_loss": loss, "teacher": teacher}
    return ConsistencyEngine("cpu", 1, loader, network, optimizer, augment, **changes)


def shifted(network):
    """Return a model that a site might receive: not what it sent."""
    received = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in received.parameters():
            parameter.add_(0.05)
    return received


def sgd(network):
    """Of Adam's first steps the sign of a rounding error would decide, where a gradient is 0."""
    return torch.optim.SGD(network.parameters(), lr=1.0)


def reference(network, loader, averages, decay):
    """One round in plain PyTorch; ``averages`` are kept from the round before, ``{}`` in the first."""
    optimizer = sgd(network)
    criterion, augment = ConsistencyLoss("dice_soft", "foreground", 0.5), build_augment("scale_shift", seed=5)
    teacher = copy.deepcopy(network).eval()

    def move():
        for name, value in network.state_dict().items():
            known = name in averages and not name.startswith("layers.1.running") and value.is_floating_point()
            averages[name] = decay * averages[name] + (1 - decay) * value if known else value.clone()

    move()
    for batch in loader:
        teacher.load_state_dict(averages)
        with torch.no_grad():
            p = teacher(batch["image"])
        network.train()
        optimizer.zero_grad()
        criterion(p, network(augment(batch["image"]))).backward()
        optimizer.step()
        move()
    return averages


def test_teacher_over_two_rounds_equals_the_formula(network, twin, unlabeled, tmp_path):
    """The engine is built anew, its state goes through a file, and the received model is another one."""
    first = build(network, unlabeled, decay=0.8, optimizer=sgd(network))
    network.load_state_dict(shifted(network).state_dict())  # after the teacher was made
    twin.load_state_dict(network.state_dict())
    first.run()
    save_tensors(tmp_path / "round_0.pt", {"engine": first.state_dict()})
    second_network = shifted(network)
    second = build(second_network, unlabeled, decay=0.8, optimizer=sgd(second_network))
    second.load_state_dict(load_tensors(tmp_path / "round_0.pt")["engine"])
    second.run()

    averages = reference(twin, unlabeled, {}, 0.8)
    assert_close(network, twin)
    twin = shifted(twin)
    averages = reference(twin, unlabeled, averages, 0.8)
    assert_close(second_network, twin, atol=1e-5)
    twin.load_state_dict(averages)
    assert_close(second.teacher.module, twin, atol=1e-5)


def test_pseudo_labels_come_from_the_teacher_and_not_from_the_student(network, unlabeled):
    engine = build(network, unlabeled, decay=0.9)
    engine.run()
    assert {mode for mode, *_ in network.passes} == {"train"} and len(network.passes) == len(unlabeled)
    assert engine.teacher.module.passes == [("eval", False, "Tensor")] * len(unlabeled)


def test_teacher_without_memory_is_the_current_model(network, twin, unlabeled):
    build(network, unlabeled, decay=0.0).run()
    build(twin, unlabeled).run()
    assert equal(network, twin)


def test_teacher_changes_training_but_never_enters_the_network(network, twin, unlabeled):
    engine = build(network, unlabeled, decay=0.99)
    engine.run()
    build(twin, unlabeled).run()
    assert network.state_dict().keys() == twin.state_dict().keys()
    assert not equal(network, twin)
    assert not equal(network, engine.teacher.module)


def test_options_may_be_switched_on_and_off_between_rounds(network, unlabeled):
    with_both, without = build(network, unlabeled, decay=0.9, ramp_up_steps=3), build(network, unlabeled)
    with_both.load_state_dict(without.state_dict())
    with_both.run()
    without.load_state_dict(with_both.state_dict())
    without.run()
    assert set(with_both.state_dict()) == {"teacher", "steps_done"} and without.state_dict() == {}


def test_the_teacher_of_another_network_is_refused(network, unlabeled):
    engine = build(network, unlabeled, decay=0.9)
    kept = engine.state_dict()
    kept["teacher"].pop("module.layers.0.weight")
    with pytest.raises(StateError, match=r"(?s)does not fit the network.*layers\.0\.weight"):
        engine.load_state_dict(kept)


def factors(engine):
    seen = []
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda e: seen.append(e.state.output["ramp_up"].item()))
    engine.run()
    return seen


def test_ramp_up_goes_on_in_the_next_round(network, unlabeled):
    first = build(network, unlabeled, ramp_up_steps=6)
    second = build(network, unlabeled, ramp_up_steps=6)
    seen = factors(first)
    second.load_state_dict(first.state_dict())
    seen += factors(second)
    assert seen == pytest.approx([math.exp(-5 * (1 - k / 6) ** 2) for k in range(6)] + [1.0, 1.0])


def test_with_masks_the_ramp_up_scales_the_consistency_loss(network, unlabeled, labeled):
    options = {"labeled_loader": labeled, "supervised_loss": SoftDiceLoss(), "unlabelled_weight": 0.5}
    engine = build(network, unlabeled[:1], ramp_up_steps=4, **options)
    engine.run()
    out = engine.state.output
    expected = out["supervised_loss"] + 0.5 * math.exp(-5) * out["unlabelled_loss"]
    assert out["loss"].item() == pytest.approx(expected.item())


def test_without_masks_the_ramp_up_scales_the_learning_rate(network, twin, unlabeled):
    """Adam's first step has the size of the learning rate, whatever the scale of the loss."""
    before = copy.deepcopy(network.state_dict())
    slow, fast = build(network, unlabeled[:1], ramp_up_steps=4), build(twin, unlabeled[:1])
    slow.run()
    fast.run()
    for name, parameter in twin.named_parameters():
        step, full = dict(network.named_parameters())[name] - before[name], parameter - before[name]
        assert torch.allclose(step, math.exp(-5) * full, atol=1e-6), name
    assert slow.optimizer.param_groups[0]["lr"] == 1e-2
    assert slow.state.output["loss"] == fast.state.output["loss"]


def test_after_the_ramp_up_training_is_as_without(network, twin, unlabeled):
    ramped = build(network, unlabeled, ramp_up_steps=5)
    ramped.load_state_dict({"steps_done": 5})
    ramped.run()
    build(twin, unlabeled).run()
    assert equal(network, twin)


def test_a_negative_ramp_up(network, unlabeled):
    with pytest.raises(FedMedError, match="ramp_up_steps is -1"):
        build(network, unlabeled, ramp_up_steps=-1)


@pytest.mark.parametrize("decay", [None, 0.9])
@pytest.mark.parametrize("name", ["identity", "scale_shift", "gauss_0.1", "cutout_2", "fix_0.1"])
def test_threshold_one_moves_no_parameter_under_any_augmentation_and_teacher(network, unlabeled, name, decay):
    """With τ = 1 the loss and its gradient are 0 (Yang et al. 2021, Eq. 6), and a fresh Adam does not move."""
    before = copy.deepcopy(network.state_dict())
    engine = build(network, unlabeled[:2], decay=decay, threshold=1.0)
    engine.augment = build_augment(name, seed=1, cutout_size=(3, 3, 2))
    engine.run()
    assert all(torch.equal(parameter, before[name]) for name, parameter in network.named_parameters())


def test_identity_and_a_certain_model_leave_no_loss(unlabeled):
    """Yang et al. 2021, Eq. 6, with g the identity, p of 0 and 1, and every voxel: the squared Dice loss is 0."""

    class Certain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, x):
            return (x > 0.5).float() * self.scale

    network = Certain()
    engine = build(network, unlabeled)
    engine.consistency_loss, engine.augment = ConsistencyLoss("dice_hard", "whole", 0.5), Augment()
    engine.run()
    assert engine.state.output["loss"].item() == pytest.approx(0, abs=1e-6)
