"""Heat maps of a classifier: a picture of the image as the network saw it."""

import numpy as np
import pytest
import torch
from fedmed_label.heat_maps import LONG_SIDE, heat_map, write_overlay
from PIL import Image
from torch import nn


class Bright(nn.Module):
    """Class 1 is the mean brightness of the image, class 0 its negative."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 1, 1)
        self.stem.weight.data.fill_(1)
        self.stem.bias.data.zero_()

    def forward(self, x):
        mean = self.stem(x).mean((2, 3))
        return torch.cat([-mean, mean], dim=1)


@pytest.fixture
def image():
    """Bright in the upper right corner; more columns than rows."""
    x = torch.zeros(1, 24, 40)
    x[0, 2:10, 28:38] = 1
    return x


def test_heat_lies_where_the_class_is(image):
    heat = heat_map(Bright(), image, 1, "stem")
    assert heat.shape == (24, 40) and heat.max() == 1 and heat.min() == 0
    assert heat[3:9, 29:37].min() > 0.9 and heat[14:, :20].max() == 0
    assert heat_map(Bright(), image, 0, "stem").max() == 0, "nothing speaks for it"


def test_the_picture_shows_both_and_keeps_rows_and_columns(image):
    path = write_overlay(image, heat_map(Bright(), image, 1, "stem"))
    with Image.open(path) as picture:
        assert picture.size == (40 * 13, 24 * 13) and picture.size[0] >= LONG_SIDE
        shown = np.asarray(picture).astype(int)
    bright, dark = shown[6 * 13, 32 * 13], shown[18 * 13, 10 * 13]
    assert bright[0] > 240 and bright[2] < 140 and np.ptp(dark) == 0 and dark.max() == 0


def test_a_picture_in_colour_stays_in_colour(image):
    red = torch.cat([image, torch.zeros(2, 24, 40)])
    with Image.open(write_overlay(red, np.zeros((24, 40), np.float32))) as picture:
        shown = np.asarray(picture).astype(int)
    assert shown[6 * 13, 32 * 13].tolist() == [255, 0, 0] and not shown[18 * 13, 10 * 13].any()


def test_the_network_stays_as_it_was(image):
    network = Bright()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    heat_map(network, image, 1, "stem")
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert all(p.grad is None or not p.grad.any() for p in network.parameters())
