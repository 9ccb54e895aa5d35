"""A loss term of a correction: in the engine's own graph, once a step, told whether there are labels."""

import copy
import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity

from fedmed.data.augment import ScaleShift
from fedmed.errors import JobError, StateError
from fedmed.systems.covid_fssl.engine import ConsistencyEngine
from fedmed.systems.covid_fssl.loss import ConsistencyLoss
from fedmed.training.corrected_steps import Corrections
from fedmed.training.corrections.correction import Correction
from fedmed.training.trainer import SupervisedEngine

spec = importlib.util.spec_from_file_location("moon", Path(__file__).parents[1] / "methods" / "moon.py")
moon = importlib.util.module_from_spec(spec)
spec.loader.exec_module(moon)


class SmallFeatures(Correction):
    """Adds ``weight`` times the mean square of the features, and notes what it is given."""

    def __init__(self, weight=0.5, layer=""):
        self.weight, self.features_layer, self.seen = weight, layer, []

    def loss(self, images, features, batch):
        self.seen.append((images.detach(), features.detach(), batch.labels))
        return self.weight * features.square().mean() if features.requires_grad else None


def classifier():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3))


def batches(count=4):
    rng = torch.Generator().manual_seed(2)
    return [{"image": torch.randn(6, 2, 4, generator=rng), "label": torch.arange(6) % 3} for _ in range(count)]


def trained(network, items, data=None):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.3)
    engine = SupervisedEngine("cpu", 1, data or batches(), network, optimizer, nn.CrossEntropyLoss())
    Corrections(items).attach(engine, list(network.state_dict()), ())
    engine.run()
    return engine


def test_it_is_in_the_gradient_of_a_step_with_labels():
    network, twin, item = classifier(), classifier(), SmallFeatures()
    engine = trained(network, [item])
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.3)
    for batch in batches():
        optimizer.zero_grad()
        features = twin[:3](batch["image"])
        loss = nn.CrossEntropyLoss()(twin[3](features), batch["label"]) + 0.5 * features.square().mean()
        loss.backward()
        optimizer.step()
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(network.parameters(), twin.parameters(), strict=True))
    assert engine.state.output["loss"].item() == pytest.approx(loss.item(), abs=1e-6)
    assert len(item.seen) == 4 and all(labels is not None for *_, labels in item.seen)
    assert torch.equal(item.seen[0][0], batches()[0]["image"]) and item.seen[0][1].shape == (6, 5)
    trained(network, [])
    assert len(item.seen) == 4, "the network and the engine are as they were"


def test_a_layer_can_be_named():
    item = SmallFeatures(layer="1")
    trained(classifier(), [item])
    assert item.seen[0][1].shape == (6, 8)
    with pytest.raises(JobError, match="Sequential has no layer 'head' to take features of; it has 0, 1, 2, 3"):
        trained(classifier(), [SmallFeatures(layer="head")])


def test_with_and_without_labels_in_one_step(undecided, unlabeled, labeled):
    """The pass of the pseudo-label, without gradient, does not count."""
    item = SmallFeatures(weight=0.0)
    engine = ConsistencyEngine("cpu", 1, unlabeled, undecided, torch.optim.SGD(undecided.parameters(), lr=0.1),
                               ScaleShift(seed=5), labeled_loader=labeled, supervised_loss=nn.MSELoss(),
                               consistency_loss=ConsistencyLoss(threshold=0.5))  # fmt: skip
    Corrections([item]).attach(engine, list(undecided.state_dict()), ())
    engine.run()
    assert [labels is not None for *_, labels in item.seen] == [True, False] * len(unlabeled)


def test_moon_by_its_equation():
    """After a round: similarity to the received model's features up, to the last own one's down, against no term."""
    data = batches(1)
    start = classifier()
    other = copy.deepcopy(start)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    features = {}
    for mu in (0.0, 5.0):
        network = copy.deepcopy(start)
        (item,) = moon.Moon(mu).corrections(network)
        item.load_state_dict({"previous": dict(other.state_dict())})
        trained(network, [item], data * 20)
        features[mu] = network[:3](data[0]["image"])
        assert all(torch.equal(item.previous[name], tensor) for name, tensor in network.state_dict().items())
    near, far = start[:3](data[0]["image"]), other[:3](data[0]["image"])
    gap = {mu: (cosine_similarity(z, near) - cosine_similarity(z, far)).mean().item() for mu, z in features.items()}
    assert gap[5.0] > gap[0.0] + 0.01


def test_moon_in_its_first_round_adds_nothing_and_refuses_another_network():
    network, twin = classifier(), classifier()
    trained(network, moon.Moon().corrections(network))
    trained(twin, [])
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), twin.parameters(), strict=True))
    (item,) = moon.Moon().corrections(network)
    item.load_state_dict({"previous": {"0.weight": torch.zeros(2)}})
    with pytest.raises(StateError, match="model of the last round"):
        trained(network, [item])


def test_an_engine_that_never_shows_images_to_the_whole_network_is_named():
    class Parts(SupervisedEngine):
        def _iteration(self, engine, batchdata):
            return {"loss": self.loss_function(self.network[3](torch.zeros(6, 5)), batchdata["label"]).detach()}

    network = classifier()
    engine = Parts("cpu", 1, batches(), network, torch.optim.SGD(network.parameters(), lr=0.1), nn.CrossEntropyLoss())
    Corrections([SmallFeatures()]).attach(engine, list(network.state_dict()), ())
    with pytest.raises(JobError, match="Parts trains parts .* no features for the loss of SmallFeatures"):
        engine.run()
