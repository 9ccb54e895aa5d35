"""The engine on a tiny network, against MoCo written out in plain PyTorch."""

import copy

import pytest
import torch
from ignite.engine import Events
from torch import nn

from fedmed.errors import DataError, FedMedError, JobError
from fedmed.systems.fedmoco.loss import info_nce
from fedmed.systems.fedmoco.metadata import dissimilarity, features, similarity_of
from fedmed.training.trainer import NonFiniteLossHandler

from ..conftest import assert_close
from .conftest import BATCH, SIZE, build


def by_hand(noise, network, batches, momentum=0.9, lr=0.1):
    """MoCo in plain PyTorch: the network, the queue (oldest first) and the losses."""
    query, key = network, copy.deepcopy(network)
    query.train()
    key.train()
    optimizer, augment = torch.optim.SGD(query.parameters(), lr=lr, momentum=0.9), noise()
    queue, losses = [], []
    with torch.no_grad():
        for batch in batches[: SIZE // BATCH]:
            queue += list(key(augment(batch["image"][:, 1])))
    for batch in batches:
        first, second = augment(batch["image"][:, 0]), augment(batch["image"][:, 1])
        with torch.no_grad():
            for slow, fast in zip(key.parameters(), query.parameters(), strict=True):
                slow.copy_(momentum * slow + (1 - momentum) * fast)
            keys = key(second)
        queries = query(first)
        similarity = queries @ torch.stack(queue).T
        loss = info_nce((queries * keys).sum(1), similarity, 0.2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue = queue[BATCH:] + list(keys)
        losses.append(loss.item())
    return key, torch.stack(queue), losses


def test_equals_moco_by_hand(noise, network, batches):
    twin = copy.deepcopy(network)
    engine, losses = build(network, batches), []
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda e: losses.append(e.state.output["loss"].item()))
    engine.run()
    key, queue, expected = by_hand(noise, twin, batches)
    assert losses == pytest.approx(expected, abs=1e-5)
    assert_close(network, twin, atol=1e-5)
    assert_close(engine.keys.network, key, atol=1e-5)
    ring = torch.roll(engine.keys.queue.keys, -engine.keys.queue.pointer, dims=0)
    assert torch.allclose(ring, queue, atol=1e-5)


def test_each_view_is_augmented_by_itself(noise, network, batches):
    augment = noise()
    build(network, batches, augment=augment).run()
    assert augment.calls == SIZE // BATCH + 2 * len(batches)  # filling needs keys only


def test_single_images_make_both_views(network, batches):
    engine = build(network, [{"image": batch["image"][:, 0]} for batch in batches])
    engine.run()
    assert torch.isfinite(engine.state.output["loss"])


def test_scalars_and_without_probe_images_nothing_leaves(network, batches):
    engine = build(network, batches)
    engine.run()
    output = engine.state.output
    assert engine.extras() == {}
    assert set(output) == {"loss", "contrastive_accuracy", "positive_similarity", "zero_rows"}
    assert 0 <= output["contrastive_accuracy"] <= 1 and 0 < output["positive_similarity"] <= 1
    assert all(value.ndim == 0 and not value.requires_grad for value in output.values())


def test_dead_features_are_counted_and_harmless(network, batches):
    with torch.no_grad():
        network.layers[4].weight.zero_()
        network.layers[4].bias.fill_(-1)
    engine = build(network, batches)
    engine.run()
    assert engine.state.output["zero_rows"] == 1
    assert engine.state.output["contrastive_accuracy"] == 0
    assert torch.isfinite(engine.state.output["loss"])


def test_the_share_of_dead_features_is_that_of_a_batch(network, batches):
    batches[-1]["image"][:3] = -100.0  # three of four images: negative after the first ReLU's bias alone
    with torch.no_grad():
        network.layers[0].weight.fill_(1.0)
        network.layers[4].weight.copy_(network.layers[4].weight.abs())
        network.layers[4].bias.fill_(-1e-3)
    engine = build(network, batches, lr=0.0)
    engine.run()
    assert engine.state.output["zero_rows"] == 0.75


def test_rsa_compares_the_received_with_the_trained_model(network, batches, probe):
    before = dissimilarity(features(network, probe))
    engine = build(network, batches, probe_loader=probe)
    engine.run()
    expected = similarity_of(before, dissimilarity(features(network, probe)))
    assert engine.extras() == {"rsa": expected} and -1 <= expected < 1


def test_an_untouched_model_has_rsa_one(network, batches, probe):
    engine = build(network, batches, probe_loader=probe)
    assert engine.extras() == {"rsa": 1.0}  # no run at all
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 0.0  # statistics stay too
    engine = build(network, batches, lr=0.0, probe_loader=probe)
    engine.run()
    assert engine.extras() == {"rsa": 1.0}


def test_milestones_count_epochs_over_all_rounds(network, batches):
    rates = []
    state = {}
    for _ in range(4):
        engine = build(network, batches, lr=0.03, milestones=[1, 3])
        engine.load_state_dict(state)
        step = engine.optimizer.step
        engine.optimizer.step = lambda step=step, engine=engine: rates.append(engine.optimizer.param_groups[0]["lr"])
        engine.run()
        state = engine.state_dict()
        assert engine.optimizer.param_groups[0]["lr"] == 0.03  # what is kept is the base rate
    assert rates[:: len(batches)] == pytest.approx([0.03, 0.003, 0.003, 0.0003])
    assert len(rates) == 4 * len(batches)


def test_the_federations_count_of_epochs_goes_before_the_sites(network, batches):
    engine, rates = build(network, batches, lr=0.03, milestones=[120], epochs_before=120), []
    engine.load_state_dict({"epochs_done": 7})
    engine.optimizer.step = lambda: rates.append(engine.optimizer.param_groups[0]["lr"])
    engine.run()
    assert rates == pytest.approx([0.003] * len(batches))
    assert engine.state_dict()["epochs_done"] == 8


def test_gradients_are_clipped(network, batches):
    engine, norms = build(network, batches, max_grad_norm=1e-3), []
    step = engine.optimizer.step

    def measured():
        norms.append(torch.stack([p.grad.norm() for p in network.parameters()]).norm().item())
        step()

    engine.optimizer.step = measured
    engine.run()
    assert max(norms) <= 1e-3 * 1.01


def test_a_loss_that_is_not_finite_is_named(network, batches):
    batches[2]["image"][0] = float("nan")
    engine = build(network, batches)
    NonFiniteLossHandler().attach(engine)
    with pytest.raises(DataError, match="step 3"):
        engine.run()


def test_other_errors(network, batches):
    with pytest.raises(FedMedError, match="temperature is 0.0"):
        build(network, batches, temperature=0.0)
    with pytest.raises(DataError, match="no images"):
        build(network, None)
    with pytest.raises(DataError, match="loader of images is empty"):
        build(network, [], epoch_length=2).run()
    with pytest.raises(FedMedError, match="queue of 3 keys.*raise queue_size"):
        build(network, batches, queue_size=3).run()
    with pytest.raises(FedMedError, match=r"\(4, 1, 8\)"):
        build(network, [{"image": torch.rand(4, 1, 8)}]).run()
    with pytest.raises(JobError, match="no use for theirs"):
        build(network, batches).receive({"others": [], "theirs": 1})
    engine = build(network, batches, synthetic_fraction=1.0)
    engine.receive({"others": [{"mu": torch.zeros(2), "sigma": torch.zeros(3)}]})
    with pytest.raises(FedMedError, match="of 2 features, this network has 6"):
        engine.run()
