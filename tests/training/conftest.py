"""A tiny network with BatchNorm, loaders that are plain lists of batches, and what recorders see and write."""

import copy
import csv
import functools

import numpy as np
import pytest
import torch
from ignite.engine import Engine
from torch import nn


def table(path):
    """Return the rows of a CSV, by the names of its columns."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run_frames(videos, attach, size=5, seconds=1.0, network=None):
    """Run an engine, as an evaluator, over frames in batches of a size; return it.

    Args:
        videos: (labels (T, ...), predictions, or images for the network (T, ...)) of each.
        attach: is given the engine before it runs.
        seconds: between two frames.
    """
    frames = [(v, t, *pair) for v, video in enumerate(videos) for t, pair in enumerate(zip(*video, strict=True))]

    def batches():
        for start in range(0, len(frames), size):
            parts = [np.stack(part) for part in zip(*frames[start : start + size], strict=True)]
            parts[1] = parts[1][:, None] * seconds
            yield dict(zip(("video", "time", "label", "pred"), map(torch.from_numpy, parts), strict=True))

    predict = network or nn.Identity()
    engine = Engine(lambda _, batch: {"pred": predict(batch["pred"]), "label": batch["label"]})
    engine.network = network
    attach(engine)
    engine.run(batches())
    return engine


@pytest.fixture
def cpu_scaler(monkeypatch):
    """Return a function that lets a GradScaler with some settings work without a GPU."""
    real = torch.amp.GradScaler

    def use(**settings):
        monkeypatch.setattr(torch.amp, "GradScaler", lambda device: functools.partial(real, "cpu")(**settings))

    return use


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


@pytest.fixture(autouse=True)
def seeded():
    """Draws of a test without a generator of its own are the same each time."""
    torch.manual_seed(0)


def bits(module):
    """Return a copy of all tensors of a network."""
    return copy.deepcopy(dict(module.state_dict()))


def equal(one, other):
    """True where two networks, or their tensors by name, have the same bits."""
    first, second = (each.state_dict() if isinstance(each, nn.Module) else each for each in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def assert_close(network, twin, atol=1e-6):
    """Two networks have the same tensors, but for rounding: their sums run in another order."""
    torch.testing.assert_close(dict(network.state_dict()), dict(twin.state_dict()), atol=atol, rtol=1e-5)


class TinyClassifier(nn.Module):
    """Logits (B, 3) of images (B, 1, 8, 8), with the parts and names of a classifier of this project."""

    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()]
        self.encoder = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(4, 3)
        self.register_buffer("temperature", torch.ones(1))

    def features(self, x):
        return self.encoder(x)

    def forward(self, x):
        return self.classifier(self.features(x))

    def probabilities(self, logits):
        return torch.softmax(logits / self.temperature, dim=1)


@pytest.fixture
def classifier():
    torch.manual_seed(3)
    return TinyClassifier()


@pytest.fixture
def pictures():
    """Batches of sixteen pictures of three classes, the brighter the higher."""
    generator = torch.Generator().manual_seed(4)
    labels = torch.tensor([0, 1, 2, 1] * 4)
    images = torch.rand(16, 1, 8, 8, generator=generator) * 0.5 + labels[:, None, None, None] * 0.2
    return [{"image": images[n : n + 5], "label": labels[n : n + 5]} for n in range(0, 16, 5)]


class Given(nn.Module):
    """Says what the first row of each picture holds."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Identity()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.layer(x * self.weight)[:, 0, 0, :3]


@pytest.fixture
def given():
    return Given()


def shown(logits, labels):
    """Return one batch whose pictures hold the logits."""
    images = torch.zeros(len(labels), 1, 4, 4)
    images[:, 0, 0, :3] = torch.as_tensor(logits, dtype=torch.float32)
    return [{"image": images, "label": torch.tensor(labels)}]


def expected_of(network, pictures):
    """Return the probabilities of a classifier, and labels."""
    with torch.no_grad():
        logits = torch.cat([network.eval()(batch["image"]) for batch in pictures])
    labels = torch.cat([batch["label"] for batch in pictures])
    return torch.softmax(logits.double() / network.temperature, 1), labels
