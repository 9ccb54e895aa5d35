"""A tiny network, two views of a few images, and what makes an engine of them."""

import pytest
import torch
from torch import nn

from fedmed.systems.fedmoco.engine import MomentumContrastEngine
from fedmed.systems.fedmoco.metadata import FeatureMetadata

DIM, BATCH, SIZE = 6, 4, 8


class Encoder(nn.Module):
    """(B, 1, 8, 8) to unit vectors without negative entries, with BatchNorm on the way."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, DIM), nn.ReLU()
        )

    def forward(self, x):
        return nn.functional.normalize(self.layers(x), dim=1, eps=1e-12)


class Noise:
    """An augmentation with random numbers of its own; counts its calls."""

    def __init__(self, seed=0):
        self.generator, self.calls = torch.Generator().manual_seed(seed), 0

    def __call__(self, batch):
        self.calls += 1
        return batch + 0.1 * torch.rand(batch.shape, generator=self.generator)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Encoder()


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(1)
    return [{"image": torch.rand(BATCH, 2, 1, 8, 8, generator=generator)} for _ in range(4)]


@pytest.fixture
def probe():
    generator = torch.Generator().manual_seed(2)
    return [{"image": torch.rand(5, 1, 8, 8, generator=generator)} for _ in range(2)]


@pytest.fixture
def noise():
    """The augmentation's class."""
    return Noise


def build(network, batches, lr=0.1, queue_size=SIZE, **options):
    """Make an engine."""
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=0.9)
    options = {"augment": Noise(), "seed": 3, "momentum": 0.9, **options}
    return MomentumContrastEngine("cpu", 1, batches, network, optimizer, queue_size=queue_size, **options)


def others(network):
    """Return statistics of the features that another site's images have."""
    loader = [{"image": torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(5))}]
    statistics = FeatureMetadata(network, loader)()
    return {"mu": statistics["mu"], "sigma": statistics["sigma"]}


def seeded_encoder(seed):
    """Return a network of its own."""
    torch.manual_seed(seed)
    return Encoder()
