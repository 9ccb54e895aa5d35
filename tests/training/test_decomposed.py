"""Weights that are the sum of two parts."""

import copy

import pytest
import torch
from torch import nn

from fedmed.errors import FedMedError, JobError
from fedmed.systems.fixmatch.fedmatch import PSI, Decomposed


@pytest.fixture
def plain():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4, 2))


@pytest.fixture
def x():
    return torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def summed(plain, factor):
    """The plain network with all parameters times a factor."""
    made = copy.deepcopy(plain)
    for parameter in made.parameters():
        parameter.data.mul_(factor)
    return made


def test_it_begins_as_the_network_times_one_and_the_ratio(plain, x):
    network, reference = Decomposed(copy.deepcopy(plain), ratio=0.2).eval(), summed(plain, 1.2).eval()
    assert torch.allclose(network(x), reference(x), atol=1e-6)
    names = {name for name, _ in plain.named_parameters()}
    assert {name.removeprefix(PSI) for name in network.state_dict() if name.startswith(PSI)} == names
    assert {f"sigma.{name}" for name in plain.state_dict()} | {PSI + name for name in names} == set(
        network.state_dict()
    )


def test_statistics_follow_in_train_mode_and_a_state_comes_back(plain, x):
    network, reference = Decomposed(copy.deepcopy(plain)).train(), summed(plain, 1.2).train()
    assert torch.allclose(network(x), reference(x), atol=1e-6)
    assert torch.allclose(network.sigma[1].running_mean, reference[1].running_mean, atol=1e-6)
    other = Decomposed(summed(plain, 3.0))
    other.load_state_dict(dict(network.state_dict()))
    assert torch.equal(other.eval()(x), network.eval()(x))


@pytest.mark.parametrize("part", ["sigma", "psi"])
def test_one_part_is_trained_and_the_other_does_not_move(plain, x, part):
    network = Decomposed(plain, trains=part)
    before = copy.deepcopy(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1, weight_decay=0.1)
    network(x).square().sum().backward()
    optimizer.step()
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name]) == (not name.startswith(f"{part}.")), name


def test_entries_near_zero_count_as_zero_where_the_network_is_used(plain, x):
    network = Decomposed(plain, threshold=0.1)
    reference = copy.deepcopy(plain).eval()
    for name, psi in network.psi.named_parameters():
        value = torch.where(psi.abs() > 0.1, psi, torch.zeros_like(psi))
        reference.get_parameter(name).data.add_(value.data)
    assert torch.allclose(network.eval()(x), reference(x), atol=1e-6)
    kept = sum(int((psi.abs() > 0.1).sum()) for psi in network.psi.parameters())
    whole = sum(psi.numel() for psi in network.psi.parameters())
    assert network.share().item() == pytest.approx(kept / whole) and 0 < kept < whole


def test_another_sites_psi(plain, x):
    """σ + 3 · 0.2 σ = 1.6 σ; a ψ of another network is refused by name."""
    network = Decomposed(copy.deepcopy(plain)).eval()
    psi = {name: 3 * value for name, value in network.state_dict().items() if name.startswith(PSI)}
    before = copy.deepcopy(network.state_dict())
    assert torch.allclose(network.with_psi(x, psi), summed(plain, 1.6).eval()(x), atol=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    with pytest.raises(JobError, match=r"does not fit this site's network at '5\.bias'"):
        network.with_psi(x, {name: value for name, value in psi.items() if name != "psi.5.bias"})
    with pytest.raises(JobError, match=r"at '0\.weight'"):
        network.with_psi(x, {**psi, "psi.0.weight": torch.zeros(1)})


def test_sizes_worked_out_by_hand():
    """σ = (3, −1 | 2), ψ = half of it: ‖ψ‖₁ = 1.5 + 0.5 + 1, ‖σ − ψ‖² = 2.25 + 0.25 + 1."""
    layer = nn.Linear(2, 1)
    layer.weight.data, layer.bias.data = torch.tensor([[3.0, -1.0]]), torch.tensor([2.0])
    network = Decomposed(layer, ratio=0.5)
    assert (network.size().item(), network.distance().item()) == pytest.approx((3.0, 3.5))


@pytest.mark.parametrize(
    ("values", "message"),
    [({"trains": "both"}, "trains is 'both'; use sigma or psi, or null"), ({"threshold": -1.0}, "threshold is -1.0")],
)
def test_values_out_of_range(plain, values, message):
    with pytest.raises(FedMedError, match=message):
        Decomposed(plain, **values)


def test_the_sum_of_the_parts_is_a_plain_network_that_answers_alike(plain, x):
    network = Decomposed(copy.deepcopy(plain), ratio=0.2, threshold=0.02).eval()
    with torch.no_grad():
        network.psi.get_parameter("0.weight").copy_(torch.linspace(-0.1, 0.1, 108).reshape(4, 3, 3, 3))
    plain.load_state_dict(network.summed())
    assert torch.equal(plain.eval()(x), network(x))
    local = network.sigma.get_parameter("0.weight")
    assert torch.equal(plain[0].weight[2, 0, 0], local[2, 0, 0]), "what counts as 0 is not added"
    assert not torch.equal(plain[0].weight[0, 0, 0], local[0, 0, 0])
