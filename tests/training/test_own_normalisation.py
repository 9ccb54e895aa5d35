"""Statistics of normalisation layers from a hospital's own images."""

import pytest
import torch
from torch import nn

from fedmed.errors import DataError
from fedmed.training.corrections.statistics import adapt, normalisation_layers, own_statistics

from .conftest import bits, equal


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()


@pytest.fixture
def images():
    return 5 + 2 * torch.randn(12, 3, 6, 6, generator=torch.Generator().manual_seed(1))


def test_layers_get_the_statistics_of_all_images(network, images):
    before = bits(network)
    result = own_statistics(network, network, images.split(5))
    assert equal(network, before), "it only looks"
    assert not any(part.training for part in network.modules())
    adapt(network, result, len(images))
    first = network[0]
    assert torch.allclose(first.running_mean, images.mean((0, 2, 3)), atol=1e-5)
    assert torch.allclose(first.running_var, images.var((0, 2, 3), correction=0), atol=1e-4)
    together = own_statistics(network, network, [images])["2"]
    assert torch.allclose(network[2].running_mean.double(), together.local[0], atol=0.05), (
        "of batches, nearly as of all"
    )
    assert torch.equal(before["1.weight"], network[1].weight) and torch.equal(before["0.weight"], first.weight)


def test_statistics_that_came_count_as_so_many_images(network, images):
    """Schneider et al. 2020, Eq. 3: N/(N + n) of what came, n/(N + n) of the images' own."""
    result = own_statistics(network, network, [images])
    adapt(network, result, len(images), prior=36)
    wanted = 0.75 * torch.zeros(3) + 0.25 * images.mean((0, 2, 3))
    assert torch.allclose(network[0].running_mean, wanted, atol=1e-5)


def test_the_distance_is_in_deviations_of_what_came(network, images):
    network[0].running_var.fill_(4.0)
    result = own_statistics(network, network, [images])["0"]
    assert result.distance == pytest.approx((images.mean((0, 2, 3)) / 2).square().mean().sqrt().item(), rel=1e-4)


def test_the_distance_is_that_of_the_network_as_it_came(network, images):
    """The second layer goes astray because the first does; once that is adapted, it would not."""
    result = own_statistics(network, network, [images])["2"]
    shown = network[1](network[0](images))
    assert torch.allclose(result.seen[0].float(), shown.mean((0, 2, 3)), atol=1e-4)
    assert result.distance > 3 * (result.local[0] - result.came[0]).square().mean().sqrt()


def test_a_network_without_such_layers_has_none(images):
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4), nn.BatchNorm2d(4, track_running_stats=False))
    assert normalisation_layers(network) == {} == own_statistics(network, network, [images])


@pytest.mark.parametrize(("given", "message"), [([], "there are none"), ([torch.ones(4, 3, 6, 6)], "all alike")])
def test_images_that_say_nothing_are_refused(network, given, message):
    before = bits(network)
    with pytest.raises(DataError, match=message):
        own_statistics(network, network, given)
    assert equal(network, before)
