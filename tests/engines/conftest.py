"""A tiny network with BatchNorm, and loaders that are plain lists of batches."""

import copy

import pytest
import torch
from torch import nn


class TinyNet(nn.Module):
    """Foreground probability (B, 1, X, Y, Z) of (B, 1, X, Y, Z); notes in which mode each pass was made."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(1, 3, 3, padding=1), nn.BatchNorm3d(3), nn.ReLU(), nn.Conv3d(3, 1, 1), nn.Sigmoid()
        )
        self.passes = []

    def forward(self, x):
        self.passes.append(("train" if self.training else "eval", torch.is_grad_enabled(), type(x).__name__))
        return self.layers(x)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return TinyNet()


@pytest.fixture
def undecided():
    """About half of its probabilities lie above one half, so that no region is empty or whole."""
    torch.manual_seed(0)
    network = TinyNet()
    with torch.no_grad():
        network.layers[3].weight.mul_(10)
        network.layers[3].bias.zero_()
    return network


@pytest.fixture
def twin(network):
    """The same network again, for a reference loop."""
    return copy.deepcopy(network)


@pytest.fixture
def unlabeled():
    generator = torch.Generator().manual_seed(1)
    return [{"image": torch.rand(2, 1, 8, 8, 8, generator=generator)} for _ in range(4)]


@pytest.fixture
def labeled():
    generator = torch.Generator().manual_seed(2)
    images = [torch.rand(2, 1, 8, 8, 8, generator=generator) for _ in range(3)]
    return [{"image": image, "label": (image > 0.6).to(torch.uint8)} for image in images]


def equal(first, second):
    """Whether two networks have the same bits."""
    return all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


@pytest.fixture
def same():
    return equal
