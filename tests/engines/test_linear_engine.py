import copy

import pytest
import torch
from ignite.engine import Events
from torch.nn.functional import cross_entropy
from torch.utils.data import RandomSampler

from fedmed.engines.handlers import AbortHandler, NonFiniteLossHandler, ProgressHandler
from fedmed.engines.linear import LinearProbeEngine
from fedmed.errors import Aborted, DataError
from fedmed.seeds import derive_seed


def build(network, loader, optimizer=None, **changes):
    optimizer = optimizer or torch.optim.SGD(network.classifier.parameters(), lr=0.1, momentum=0.9)
    settings = {"batch_size": 4, "epoch_length": 6, **changes}
    return LinearProbeEngine("cpu", 1, loader, network, optimizer, cross_entropy, **settings)


def bits(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def test_equals_a_plain_loop_over_features(classifier, pictures):
    twin = copy.deepcopy(classifier)
    build(classifier, pictures, seed=5).run()
    twin.eval()
    with torch.no_grad():
        features = torch.cat([twin.encoder(batch["image"]) for batch in pictures])
    labels = torch.cat([batch["label"] for batch in pictures])
    generator = torch.Generator().manual_seed(derive_seed(5, "order of cases"))
    order = torch.tensor(list(RandomSampler(labels, num_samples=24, generator=generator)))
    assert sorted(order[:16].tolist()) == list(range(16))  # all cases before any comes again
    optimizer = torch.optim.SGD(twin.classifier.parameters(), lr=0.1, momentum=0.9)
    for places in order.reshape(6, 4):
        optimizer.zero_grad()
        cross_entropy(twin.classifier(features[places]), labels[places]).backward()
        optimizer.step()
    assert torch.equal(classifier.classifier.weight, twin.classifier.weight)
    assert torch.equal(classifier.classifier.bias, twin.classifier.bias)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_the_encoder_keeps_its_bits_whatever_the_optimizer_holds(classifier, pictures, kind):
    classifier.train()
    classifier(pictures[0]["image"]).sum().backward()  # stale gradients
    before, head = bits(classifier.encoder), bits(classifier.classifier)
    optimizer = kind(classifier.parameters(), lr=0.1, weight_decay=0.1)
    build(classifier, pictures, optimizer).run()
    after = bits(classifier.encoder)
    assert any("running_mean" in name for name in before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert not torch.equal(bits(classifier.classifier)["weight"], head["weight"])


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
        classifier.eval()
        expected = torch.cat([classifier.encoder(batch["image"]) for batch in pictures])
    engine.run()
    assert all((row == expected).all(dim=1).any() for row in seen[0])


def test_it_learns_what_is_easy(classifier, pictures):
    losses = []
    with torch.no_grad():
        classifier.encoder[0].weight.mul_(30)  # brighter pictures are further apart
    optimizer = torch.optim.SGD(classifier.classifier.parameters(), lr=1.0)
    engine = build(classifier, pictures, optimizer, epoch_length=400, batch_size=16)
    ProgressHandler(lambda step, steps, scalars: losses.append(scalars["loss"]), 50).attach(engine)
    NonFiniteLossHandler().attach(engine)
    engine.run()
    assert len(losses) == 8 and losses[-1] < 0.6 * losses[0]


def test_seed_decides_the_order(classifier, pictures):
    found = []
    for seed in (1, 1, 2):
        network = copy.deepcopy(classifier)
        build(network, pictures, seed=seed).run()
        found.append(network.classifier.weight)
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_a_batch_may_be_larger_than_the_site(classifier, pictures):
    engine = build(classifier, pictures[-1:], batch_size=8, epoch_length=2)
    engine.run()
    assert engine.state.output["image"].shape == (8, 4)


def test_an_abort_is_noticed_between_the_features(classifier, pictures):
    passes = []
    classifier.encoder.register_forward_hook(lambda *_: passes.append(1))
    engine = build(classifier, pictures)
    AbortHandler(lambda: len(passes) == 2).attach(engine)
    with pytest.raises(Aborted):
        engine.run()
    assert len(passes) == 2


def test_sites_without_labels(classifier, pictures):
    with pytest.raises(DataError, match="no labelled images; list some under 'training'"):
        build(classifier, None)
    with pytest.raises(DataError, match="needs cases with a class"):
        build(classifier, [{"image": pictures[0]["image"]}]).run()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_features_stay_on_the_gpu(classifier, pictures):
    classifier.cuda()
    optimizer = torch.optim.SGD(classifier.classifier.parameters(), lr=0.1)
    engine = LinearProbeEngine("cuda", 1, pictures, classifier, optimizer, cross_entropy, batch_size=4, amp=True)
    engine.run()
    assert engine.state.output["image"].is_cuda and engine.state.output["loss"].isfinite()
