import copy

import numpy as np
import pytest
import torch
from ignite.engine import Events
from scipy.optimize import minimize
from torch import nn
from torch.nn.functional import cross_entropy

from fedmed.errors import Aborted, DataError
from fedmed.systems.fedmoco.linear_probe import LinearProbeEngine, LinearSgdEngine
from fedmed.training.trainer import AbortHandler, NonFiniteLossHandler, ProgressHandler

from .conftest import bits, equal


def build(network, loader, kind=LinearProbeEngine, **changes):
    unused = torch.optim.SGD(network.classifier.parameters(), lr=0.1)
    return kind("cpu", 1, loader, network, unused, cross_entropy, **{"epoch_length": 100, **changes})


@torch.no_grad()
def logits_of(network, pictures):
    network.eval()
    return network(torch.cat([batch["image"] for batch in pictures])).double()


@torch.no_grad()
def features_of(network, pictures):
    """Features of all pictures and their labels."""
    network.eval()
    features = torch.cat([network.encoder(batch["image"]) for batch in pictures])
    return features.double().numpy(), torch.cat([batch["label"] for batch in pictures]).numpy()


def best(features, labels, decay, classes=3):
    """Logits of the best classifier by SciPy."""
    inputs = features - features.mean(0)
    inputs /= np.sqrt((inputs**2).mean())
    truth = np.eye(classes)[labels]

    def objective(flat):
        weight, bias = flat[:-classes].reshape(classes, -1), flat[-classes:]
        logits = inputs @ weight.T + bias
        scores = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        wrong = (np.exp(scores) - truth) / len(labels)
        gradient = np.r_[(wrong.T @ inputs).ravel(), wrong.sum(0)] + decay * flat
        return -(truth * scores).sum() / len(labels) + decay / 2 * (flat**2).sum(), gradient

    result = minimize(objective, np.zeros((features.shape[1] + 1) * classes), jac=True, options={"gtol": 1e-9}).x
    return inputs @ result[:-classes].reshape(classes, -1).T + result[-classes:]


class Flat(nn.Module):
    """Pixels as features: most of their variance is brightness, which all share."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.encoder, self.classifier = nn.Flatten(), nn.Linear(64, 3)

    def features(self, images):
        return self.encoder(images)

    def forward(self, images):
        return self.classifier(self.features(images))


@pytest.mark.parametrize("start", [None, 0, 1, 2])
@pytest.mark.parametrize(("options", "decay"), [({}, 0.2), ({"weight_decay": 0.02}, 0.02)])
def test_finds_the_best_classifier_also_among_correlated_features(classifier, pictures, start, options, decay):
    network = classifier if start is None else Flat(start)
    build(network, pictures, **options).run()
    expected = torch.softmax(torch.as_tensor(best(*features_of(network, pictures), decay)), 1)
    assert torch.allclose(torch.softmax(logits_of(network, pictures), 1), expected, atol=1e-4)


@pytest.mark.parametrize("scale", [0.01, 100])
def test_neither_the_scale_of_the_features_nor_the_start_matters(classifier, pictures, scale):
    twin = copy.deepcopy(classifier)
    with torch.no_grad():
        twin.encoder[0].weight.mul_(scale)
        twin.encoder[0].bias.mul_(scale)
        twin.classifier.weight.normal_()
        before = features_of(classifier, pictures)[0].std() * scale
    assert features_of(twin, pictures)[0].std() == pytest.approx(before, rel=1e-3)
    for network in (classifier, twin):
        build(network, pictures).run()
    result = [torch.softmax(logits_of(network, pictures), 1) for network in (classifier, twin)]
    assert torch.allclose(*result, atol=1e-4)


def test_each_round_goes_on_from_the_received_classifier(classifier, pictures):
    whole, parts, losses = copy.deepcopy(classifier), copy.deepcopy(classifier), []
    engine = build(parts, pictures, epoch_length=5)
    engine.add_event_handler(Events.STARTED, lambda _: losses.append([]))
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda e: losses[-1].append(float(e.state.output["loss"])))
    for _ in range(15):
        engine.run()
    assert all(after[0] <= before[-1] + 1e-6 for before, after in zip(losses, losses[1:], strict=False))
    build(whole, pictures).run()
    assert torch.allclose(logits_of(parts, pictures), logits_of(whole, pictures), atol=1e-2)


def test_the_encoder_keeps_its_bits(classifier, pictures):
    classifier.train()
    classifier(pictures[0]["image"]).sum().backward()  # stale gradients
    before, head = bits(classifier.encoder), bits(classifier.classifier)
    build(classifier, pictures).run()
    assert any("running_mean" in name for name in before) and equal(classifier.encoder, before)
    assert not torch.equal(classifier.classifier.weight, head["weight"])


def test_features_are_computed_once_and_in_eval_mode(classifier, pictures):
    modes = []
    classifier.train()
    classifier.encoder.register_forward_hook(
        lambda module, *_: modes.append((module.training, torch.is_grad_enabled()))
    )
    engine = build(classifier, pictures, epoch_length=None)
    engine.state.max_epochs = 3
    engine.run()
    assert modes == [(False, False)] * len(pictures)
    assert engine.state.iteration == 3 * len(pictures)


def test_a_second_run_sees_the_received_encoder(classifier, pictures):
    engine = build(classifier, pictures)
    engine.run()
    seen = []
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda e: seen.append(e.state.output["image"].clone()))
    with torch.no_grad():
        classifier.encoder[0].bias.add_(1)
    engine.run()
    assert torch.equal(seen[0].double(), torch.as_tensor(features_of(classifier, pictures)[0]))


def test_progress_and_no_work_after_the_best_is_found(classifier, pictures):
    losses, calls = [], []

    def loss(*values):
        calls.append(1)
        return cross_entropy(*values)

    engine = build(classifier, pictures, epoch_length=400)
    engine.loss_function = loss
    ProgressHandler(lambda step, steps, scalars: losses.append(scalars["loss"]), 50).attach(engine)
    NonFiniteLossHandler().attach(engine)
    engine.run()
    assert len(losses) == 8 and losses[-1] < losses[0]
    assert engine.state.iteration == 400 and len(calls) < 200


def test_the_same_again_is_the_same(classifier, pictures):
    twin = copy.deepcopy(classifier)
    for network in (classifier, twin):
        build(network, pictures).run()
    assert torch.equal(classifier.classifier.weight, twin.classifier.weight)


def test_a_class_without_a_case_stays_possible(classifier, pictures):
    """A site's layer is averaged with those of others, who may know the class."""
    known = [{"image": b["image"][b["label"] < 2], "label": b["label"][b["label"] < 2]} for b in pictures]
    build(classifier, known).run()
    absent = torch.softmax(logits_of(classifier, pictures), 1)[:, 2]
    assert 0.03 < absent.mean() < 0.3


@pytest.mark.parametrize("copies", [1, 2])
def test_one_case_alone(classifier, pictures, copies):
    image, label = pictures[0]["image"][:1], pictures[0]["label"][:1]
    build(classifier, [{"image": image, "label": label}] * copies).run()
    assert logits_of(classifier, [{"image": image}]).argmax() == label
    assert all(tensor.isfinite().all() for tensor in classifier.classifier.parameters())


def test_an_abort_is_noticed_between_the_features(classifier, pictures):
    passes = []
    classifier.encoder.register_forward_hook(lambda *_: passes.append(1))
    engine = build(classifier, pictures)
    AbortHandler(lambda: len(passes) == 2).attach(engine)
    with pytest.raises(Aborted):
        engine.run()
    assert len(passes) == 2


@pytest.mark.parametrize("kind", [LinearProbeEngine, LinearSgdEngine])
def test_sites_without_labels(classifier, pictures, kind):
    with pytest.raises(DataError, match="no labelled images; list some under 'training'"):
        build(classifier, None, kind)
    with pytest.raises(DataError, match="needs cases with a class"):
        build(classifier, [{"image": pictures[0]["image"]}], kind).run()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_features_stay_on_the_gpu(classifier, pictures):
    classifier.cuda()
    optimizer = torch.optim.SGD(classifier.classifier.parameters(), lr=0.1)
    engine = LinearProbeEngine("cuda", 1, pictures, classifier, optimizer, cross_entropy, amp=True)
    engine.run()
    assert engine.state.output["image"].is_cuda and engine.state.output["loss"].isfinite()
