"""Every correction gives the gradient of the loss that its paper writes, moves what is shared, knows its network."""

import copy
import functools

import pytest
import torch
from torch import nn

from fedmed.errors import JobError, StateError
from fedmed.systems.algorithms.feddyn import DynamicTerm
from fedmed.systems.algorithms.fedprox import ProximalTerm
from fedmed.systems.algorithms.scaffold import ControlVariate
from fedmed.training.corrected_steps import Corrections
from fedmed.training.corrections.correction import RoundStart
from fedmed.training.trainer import SupervisedEngine

STATEFUL = [functools.partial(DynamicTerm, 0.3), ControlVariate]


def layers(start=0.0):
    """Two parameters of one number each, in a place where the round has moved them."""
    network = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)).double()
    for parameter in network.parameters():
        nn.init.constant_(parameter, start)
    return network


def begun(term, network, shared=("0.weight", "1.weight"), **values):
    received = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    term.begin(RoundStart(received, frozenset(shared), values, parameters=dict(network.named_parameters())))
    return received


def gradients(term, network, loss):
    """Of the loss, corrected."""
    network.zero_grad()
    loss(network).backward()
    with torch.no_grad():
        term.before_step(dict(network.named_parameters()))
    return [parameter.grad.item() for parameter in network.parameters()]


@pytest.mark.parametrize(("mu", "gradient"), [(0.5, -1.5), (0.01, -1.99)])
def test_the_pull_worked_out_by_hand(mu, gradient):
    """H = (w - 3)²/2 at w = 1, received 0."""
    network, term = layers(), ProximalTerm(mu)
    begun(term, network)
    nn.init.ones_(network[0].weight)
    result = gradients(term, network, lambda net: (net[0].weight - 3).square().sum() / 2 + 0 * net[1].weight.sum())
    assert result == [pytest.approx(gradient), 0.0]


def test_no_strength_changes_no_bit_and_a_great_one_keeps_the_weights():
    network = layers(0.7)
    term = ProximalTerm(0.0)
    begun(term, network)
    nn.init.constant_(network[0].weight, 0.1)
    assert gradients(term, network, lambda net: (net[0].weight / 3 + net[1].weight).sum()) == [1 / 3, 1.0]
    network, term = layers(), ProximalTerm(1e6)
    begun(term, network)
    for _ in range(20):
        (result, _) = gradients(term, network, lambda n: (n[0].weight - 3).square().sum() / 2 + 0 * n[1].weight.sum())
        with torch.no_grad():
            network[0].weight -= result / (1 + 1e6)
    assert network[0].weight.item() == pytest.approx(3e-6, rel=1e-5)


@pytest.mark.parametrize("kind", ["proximal", "dynamic"])
def test_the_gradient_is_that_of_the_written_loss(kind):
    """By autograd, after two rounds that left a state."""
    term = ProximalTerm(0.4) if kind == "proximal" else DynamicTerm(0.4)
    network, g = layers(0.2), torch.zeros(2, dtype=torch.float64)
    for move in (0.5, -0.2):
        received = begun(term, network)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter += move
        g = g - 0.4 * move if kind == "dynamic" else g
        term.end(dict(network.named_parameters()))
    received = begun(term, network)
    with torch.no_grad():
        network[0].weight += 0.3

    def loss(net):
        return (net[0].weight * net[1].weight - 1).square().sum()

    def written(net):
        apart = [net[i].weight - received[f"{i}.weight"] for i in (0, 1)]
        linear = sum(g[i] * net[i].weight.sum() for i in (0, 1))
        return loss(net) + 0.4 / 2 * sum(a.square().sum() for a in apart) - linear

    result = gradients(term, network, loss)
    network.zero_grad()
    written(network).backward()
    assert result == pytest.approx([parameter.grad.item() for parameter in network.parameters()], abs=1e-12)


@pytest.mark.parametrize("make", STATEFUL)
def test_what_stays_at_the_site_gets_no_term_and_no_state(make):
    network, term = layers(), make()
    begun(term, network, shared=("0.weight",))
    assert gradients(term, network, lambda net: (net[0].weight + net[1].weight).sum())[1] == 1.0
    with torch.no_grad():
        network[0].weight += 1
        network[1].weight += 1
    term.end(dict(network.named_parameters()))
    (kept,) = term.state_dict().values()
    assert kept.keys() == {"0.weight"}
    sent = [value.keys() for value in term.extras().values()]
    assert sent in ([], [{"0.weight"}])


@pytest.mark.parametrize("make", STATEFUL)
def test_the_state_of_another_network_is_refused_by_one_error(make):
    network, term, other = layers(), make(), make()
    begun(term, network)
    gradients(term, network, lambda net: (net[0].weight + net[1].weight).sum())
    term.end(dict(network.named_parameters()))
    other.load_state_dict(copy.deepcopy(term.state_dict()))
    begun(other, layers())
    with pytest.raises(StateError, match=r"another network: '0.weight' is \(1, 1\) there and \(2, 1\) here.*new run"):
        begun(other, nn.Sequential(nn.Linear(1, 2)).double())
    with pytest.raises(StateError, match="'0.weight' is .* there and missing here"):
        begun(other, nn.Linear(1, 1).double())


@pytest.mark.parametrize("mu", [-0.1, float("inf"), None, "0.1"])
def test_a_strength_that_is_not_one(mu):
    with pytest.raises(JobError, match="'mu' is .*; give a number of at least 0"):
        ProximalTerm(mu)


class Scale(nn.Module):
    """One number times the image; mixed precision leaves a product in float32."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, image):
        return image * self.weight


@pytest.mark.filterwarnings("ignore:CUDA is not available")
@pytest.mark.parametrize("make", [lambda: ProximalTerm(0.5), *STATEFUL], ids=["proximal", "dynamic", "control"])
def test_a_scaler_of_mixed_precision_changes_no_bit(make, cpu_scaler):
    """Two rounds. A term added to gradients times 1024 would be 1024 times too weak."""
    cpu_scaler(init_scale=1024.0)
    result = []
    loader = [{"image": torch.ones(1, 1), "label": torch.full((1, 1), place)} for place in (3.0, 5.0, 2.0)]
    for terms, amp in (([make()], False), ([make()], True), ([], True)):
        network, corrections = Scale(), Corrections(terms)
        engine = SupervisedEngine("cpu", 1, loader, network, torch.optim.SGD(network.parameters(), lr=0.125),
                                  lambda p, y: (p - y).square().mean())  # fmt: skip
        engine.amp = amp
        for _ in range(2):
            corrections.receive({"control": {"weight": torch.tensor([0.25])}})
            corrections.attach(engine, ["weight"], ["weight"])
            engine.run()
        result.append(network.weight.item())
    assert result[0] == result[1] != result[2]
