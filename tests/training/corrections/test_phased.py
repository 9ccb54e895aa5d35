"""First the head, then the representation: what moves when, and what cannot be split so."""

import copy
import math

import pytest
import torch
from torch import nn

from fedmed.errors import JobError
from fedmed.systems.algorithms.fedrep import HeadFirst
from fedmed.training.corrected_steps import Corrections
from fedmed.training.corrections.correction import RoundStart
from fedmed.training.trainer import SupervisedEngine

from ..conftest import bits, equal

HEAD = ("4.weight", "4.bias")


@pytest.fixture
def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Dropout(0.5), nn.Linear(3, 1))


def batch(place):
    draw = torch.Generator().manual_seed(place)
    return {"image": torch.randn(4, 2, generator=draw), "label": torch.randn(4, 1, generator=draw)}


def split(network):
    names = list(network.state_dict())
    return [name for name in names if name in HEAD], [name for name in names if name not in HEAD]


def part(state, names):
    return {name: state[name] for name in names}


def trained(network, steps, share=0.5, optimizer=None, amp=False):
    """Train; return the state before each iteration, and after the last."""
    optimizer = optimizer or torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    loader = [batch(place) for place in range(steps)]
    engine = SupervisedEngine("cpu", 1, loader, network, optimizer, lambda p, y: (p - y).square().mean())
    engine.amp, states, (_, body) = amp, [], split(network)
    Corrections([HeadFirst(network, share)]).attach(engine, body, body, steps=steps)
    engine.add_event_handler("ITERATION_STARTED", lambda: states.append(bits(network)))
    engine.run()
    return [*states, bits(network)]


@pytest.mark.parametrize(
    ("steps", "share", "first"), [(4, 0.5, 2), (5, 0.5, 3), (2, 0.01, 1), (2, 0.99, 1), (6, 1 / 3, 2), (7, 0.9, 6)]
)
def test_the_head_moves_first_and_then_all_else(layers, steps, share, first):
    head, body = split(layers)
    start = bits(layers)
    states = trained(layers, steps, share)
    for number in range(1, steps + 1):
        before, after = states[number - 1], states[number]
        parts = [any(not torch.equal(before[n], after[n]) for n in names if "weight" in n) for names in (head, body)]
        assert parts == [number <= first, number > first], number
    assert equal(part(start, body), part(states[first], body)), "the representation as it came, with statistics"
    assert equal(part(states[first], head), part(states[-1], head))
    assert all(parameter.requires_grad for parameter in layers.parameters()) and layers.training


def test_momentum_and_moments_of_the_round_before_move_nothing_that_is_frozen(layers):
    head, body = split(layers)
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.1, weight_decay=0.1)
    trained(layers, 4, optimizer=optimizer)
    start = part(bits(layers), body)
    states = trained(layers, 4, optimizer=optimizer)
    assert equal(start, part(states[2], body)) and equal(part(states[2], head), part(states[-1], head))


def test_equals_a_plain_loop_with_dropout_in_both_parts(layers):
    twin = copy.deepcopy(layers)
    torch.manual_seed(5)
    trained(layers, 4, optimizer=torch.optim.SGD(layers.parameters(), lr=0.1))
    torch.manual_seed(5)
    statistics = copy.deepcopy(dict(twin[1].named_buffers()))
    for place in range(4):
        moving = list(twin[4].parameters()) if place < 2 else [*twin[0].parameters(), *twin[1].parameters()]
        if place == 2:
            twin[1].load_state_dict({**twin[1].state_dict(), **statistics})
        loss = (twin(batch(place)["image"]) - batch(place)["label"]).square().mean()
        with torch.no_grad():
            for parameter, gradient in zip(moving, torch.autograd.grad(loss, moving), strict=True):
                parameter -= 0.1 * gradient
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(layers.parameters(), twin.parameters(), strict=True))
    assert not any(isinstance(layer, nn.Dropout) and not layer.training for layer in layers.modules())


def test_what_no_optimizer_trains_stays_so(layers):
    layers[0].weight.requires_grad_(False)
    before = layers[0].weight.clone()
    trained(layers, 4)
    assert torch.equal(layers[0].weight, before) and not layers[0].weight.requires_grad
    assert layers[0].bias.requires_grad


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_steps_that_mixed_precision_skips_count_as_well(layers, monkeypatch, cpu_scaler):
    """The first of four overflows; the second part begins with the third all the same."""
    cpu_scaler(init_scale=1024.0)
    usual, (head, _) = batch, split(layers)
    monkeypatch.setitem(
        globals(), "batch", lambda n: {**usual(n), "label": usual(n)["label"] * (1 if n else torch.inf)}
    )
    start = bits(layers)
    states = trained(layers, 4, amp=True)
    assert equal(part(start, head), part(states[1], head)), "the first step was skipped"
    assert equal(part(states[2], head), part(states[-1], head))


def begin(network, shared, received=None, steps=4):
    received = network.state_dict() if received is None else {name: network.state_dict()[name] for name in received}
    parameters = dict(network.named_parameters())
    HeadFirst(network).begin(RoundStart(received, frozenset(shared), steps=steps, parameters=parameters))


def test_parts_that_overlap_leave_something_out_or_are_empty(layers):
    head, body = split(layers)
    with pytest.raises(JobError, match="'4.weight' comes from the server and does not go back, so it is neither of"):
        begin(layers, body)
    with pytest.raises(JobError, match="no layer of the head is trained: the head is what 'sharing' keeps at the site"):
        begin(layers, [*head, *body])
    with pytest.raises(JobError, match="no layer of the representation is trained"):
        begin(layers, ["1.running_mean"], ["1.running_mean"])
    with pytest.raises(JobError, match="a round of 1 step has no room for head and representation; give it 2 or more"):
        begin(layers, body, body, steps=1)
    assert all(parameter.requires_grad for parameter in layers.parameters())


@pytest.mark.parametrize("share", [0, 1, -0.5, math.nan, True, "0.5"])
def test_a_share_that_is_not_one(share, layers):
    with pytest.raises(JobError, match="'head_share' is .*; give a number above 0 and below 1"):
        HeadFirst(layers, share)
