"""A model that is scored with the statistics of a site's own images."""

import copy

import pytest
import torch
from torch import nn

from fedmed.errors import DataError
from fedmed.training.corrections.own_images import OwnImages
from fedmed.training.corrections.statistics import OwnStatistics


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 2, 1)).eval()


def images(shift=0.0, count=20, side=6):
    rng = torch.Generator().manual_seed(0)
    return [{"image": shift + torch.randn(3, side, side, generator=rng)} for _ in range(count)]


def adapted(network, local, prior=0.0, change=lambda batch: batch):
    OwnStatistics(OwnImages(local), prior).change_network(network, network, change)
    return network


def test_the_network_gets_the_sites_statistics(network, caplog):
    caplog.set_level("INFO")
    local = images(2.0)
    adapted(network, local)
    pixels = torch.stack([one["image"] for one in local])
    assert torch.allclose(network[0].running_mean, pixels.mean((0, 2, 3)), atol=1e-5)
    assert "the site's own statistics: features lie 2" in caplog.text


def test_they_are_of_images_as_the_network_sees_them(network):
    adapted(network, images(2.0), change=lambda batch: batch + 10)
    assert network[0].running_mean.mean() == pytest.approx(12, abs=0.1)


def test_images_of_several_sizes_are_taken_one_after_the_other(network):
    adapted(network, [*images(2.0, 2), *images(4.0, 2, 6), *images(3.0, 2, 9)])
    assert 2 < network[0].running_mean.mean() < 4


def test_a_site_whose_features_the_model_knows_stays_as_it_is(network, caplog):
    caplog.set_level("INFO")
    before = copy.deepcopy(network.state_dict())
    adapted(network, images(0.1))
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert "the model keeps its statistics, from which features lie 0.059 deviations" in caplog.text


def test_a_network_without_such_layers_is_told(caplog):
    adapted(nn.Conv2d(3, 2, 1), images())
    assert "no BatchNorm layer, so there are no statistics to adapt" in caplog.text


def test_one_image_is_refused(network):
    with pytest.raises(DataError, match="need 2 images or more, and the site has 1; leave 'statistics' out"):
        adapted(network, images(2.0, 1))


@pytest.mark.parametrize("judged", [True, False])
def test_statistics_after_which_one_class_alone_is_called_are_taken_back(network, judged):
    """Dark images and bright ones, which the model told apart; normalised anew, all lie where it knows one class."""
    local = [{"image": torch.full((3, 6, 6), value) + 0.01 * torch.randn(3, 6, 6)} for value in (4.0, 6.0) * 10]
    network[1].weight.data.copy_(torch.stack([torch.zeros(3, 1, 1), torch.ones(3, 1, 1)]))
    network[1].bias.data.copy_(torch.tensor([15.0, 0.0]))  # the second class from 5 on
    before = copy.deepcopy(network.state_dict())
    correction = OwnStatistics(OwnImages(local), 0.0, judged=judged)
    correction.change_network(network, network, lambda batch: batch)
    kept = all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert kept is judged
    said = "features lie 5 deviations from the model's"
    against = "but the model then calls one class alone, where it called 2 before"
    wanted = f"not the site's own statistics: {said}, {against}" if judged else f"the site's own statistics: {said}"
    assert correction.decision == wanted


def test_a_model_that_says_nothing_of_single_images_is_not_judged(network):
    correction = OwnStatistics(OwnImages(images(2.0)), 0.0)
    correction.change_network(network, lambda batch: network(batch).mean(dim=(0, 2, 3)), lambda batch: batch)
    assert correction.decision.startswith("the site's own statistics")
