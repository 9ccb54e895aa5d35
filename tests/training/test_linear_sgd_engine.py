"""The published linear protocol, against SGD written out on the features."""

import copy

import torch
from ignite.engine import Events
from torch.nn.functional import cross_entropy

from fedmed.systems.fedmoco.linear_probe import LinearProbeEngine, LinearSgdEngine


def build(network, loader, epochs=1, lr=0.1, **changes):
    optimizer = torch.optim.SGD(network.classifier.parameters(), lr=lr, momentum=0.9)
    return LinearSgdEngine("cpu", epochs, loader, network, optimizer, cross_entropy, **{"batch_size": 5, **changes})


def test_equals_sgd_by_hand_with_every_case_once_an_epoch(classifier, pictures):
    twin, seen = copy.deepcopy(classifier), []
    n = sum(len(batch["label"]) for batch in pictures)
    engine = build(classifier, pictures, epochs=3, epoch_length=-(-n // 5))
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda e: seen.append(e.state.output))
    engine.run()
    twin.eval()
    with torch.no_grad():
        rows = torch.cat([twin.encoder(batch["image"]) for batch in pictures])
    labels = torch.cat([batch["label"] for batch in pictures])
    places = {row.numpy().tobytes(): place for place, row in enumerate(rows)}
    optimizer, visited = torch.optim.SGD(twin.classifier.parameters(), lr=0.1, momentum=0.9), []
    for output in seen:
        local = [places[row.numpy().tobytes()] for row in output["image"]]
        visited += local
        loss = cross_entropy(twin.classifier(rows[local]), labels[local])
        assert torch.equal(output["loss"], loss.detach()) and torch.equal(output["label"], labels[local])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    epochs = [visited[at : at + n] for at in range(0, 3 * n, n)]
    assert all(sorted(epoch) == list(range(n)) for epoch in epochs) and epochs[0] != epochs[1]
    assert torch.equal(classifier.classifier.weight, twin.classifier.weight)


def test_the_encoder_keeps_its_bits_and_the_same_seed_its_order(classifier, pictures):
    before, twin, other = (copy.deepcopy(classifier) for _ in range(3))
    for network, seed in ((classifier, 1), (twin, 1), (other, 2)):
        build(network, pictures, epochs=2, seed=seed).run()
    for name, tensor in before.encoder.state_dict().items():
        assert torch.equal(classifier.encoder.state_dict()[name], tensor)
    assert torch.equal(classifier.classifier.weight, twin.classifier.weight)
    assert not torch.equal(classifier.classifier.weight, other.classifier.weight)


def test_it_is_not_the_best_layer_but_approaches_it(classifier, pictures):
    @torch.no_grad()
    def loss():
        classifier.eval()
        return float(sum(cross_entropy(classifier(b["image"]), b["label"], reduction="sum") for b in pictures))

    losses, unused = [loss()], torch.optim.SGD(classifier.classifier.parameters(), lr=0.1)
    best = LinearProbeEngine("cpu", 100, pictures, classifier, unused, cross_entropy, weight_decay=1e-4)
    for engine in (build(classifier, pictures, epochs=50), best):
        engine.run()
        losses.append(loss())
    assert losses == sorted(losses, reverse=True)
