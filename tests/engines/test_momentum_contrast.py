"""The engine on a tiny network, against MoCo written out in plain PyTorch."""

import copy

import pytest
import torch
from ignite.engine import Events
from torch import nn

from fedmed.engines.feature_metadata import FeatureMetadata
from fedmed.engines.handlers import AbortHandler, NonFiniteLossHandler
from fedmed.engines.momentum_contrast import MomentumContrastEngine
from fedmed.engines.representation import dissimilarity, features, similarity_of
from fedmed.errors import Aborted, DataError, FedMedError, JobError, StateError
from fedmed.losses.info_nce import info_nce

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


def build(network, batches, lr=0.1, queue_size=SIZE, **options):
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=0.9)
    options = {"augment": Noise(), "seed": 3, "momentum": 0.9, **options}
    return MomentumContrastEngine("cpu", 1, batches, network, optimizer, queue_size=queue_size, **options)


def others(network, images=40, seed=5):
    """Statistics of the features that another site's images have."""
    loader = [{"image": torch.rand(images, 1, 8, 8, generator=torch.Generator().manual_seed(seed))}]
    found = FeatureMetadata(network, loader)()
    return {"mu": found["mu"], "sigma": found["sigma"]}


def by_hand(network, batches, momentum=0.9, lr=0.1):
    """MoCo in plain PyTorch: the network, the queue (oldest first) and the losses."""
    query, key = network, copy.deepcopy(network)
    query.train()
    key.train()
    optimizer, augment = torch.optim.SGD(query.parameters(), lr=lr, momentum=0.9), Noise()
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


def test_equals_moco_by_hand(network, batches):
    twin = copy.deepcopy(network)
    engine, losses = build(network, batches), []
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda e: losses.append(e.state.output["loss"].item()))
    engine.run()
    key, queue, expected = by_hand(twin, batches)
    assert losses == pytest.approx(expected, abs=1e-5)
    for mine, theirs in ((network, twin), (engine.key_network, key)):  # buffers too
        for name, tensor in theirs.state_dict().items():
            assert torch.allclose(mine.state_dict()[name], tensor, atol=1e-5), name
    ring = torch.roll(engine.queue.keys, -engine.queue.pointer, dims=0)
    assert torch.allclose(ring, queue, atol=1e-5)


def test_each_view_is_augmented_by_itself(network, batches):
    augment = Noise()
    build(network, batches, augment=augment).run()
    assert augment.calls == SIZE // BATCH + 2 * len(batches)  # filling needs keys only


def test_single_images_make_both_views(network, batches):
    engine = build(network, [{"image": batch["image"][:, 0]} for batch in batches])
    engine.run()
    assert torch.isfinite(engine.state.output["loss"])


def test_scalars(network, batches):
    engine = build(network, batches)
    engine.run()
    output = engine.state.output
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


# A queue that is longer than a round


def warned(caplog, network, batches, state=(), **options):
    """What an engine says about its queue; ``state``: of the round before."""
    caplog.clear()
    engine = build(network, batches, **options)
    engine.load_state_dict(dict(state))
    with caplog.at_level("WARNING", "fedmed.site"):
        engine.run()
    return [record.getMessage() for record in caplog.records], engine.state_dict()


def test_a_queue_longer_than_a_round_is_told_once(network, batches, caplog):
    told, state = warned(caplog, network, batches, queue_size=17)  # a round: four batches of four
    assert len(told) == 1 and "17 keys, but a round makes only 16 (4 steps of 4 images)" in told[0]
    assert "queue_size to 16 or less or key_policy to refill" in told[0]
    assert warned(caplog, network, batches, state, queue_size=17)[0] == []


@pytest.mark.parametrize(
    "fits", [{"queue_size": 16}, {"queue_size": 17, "key_policy": "refill"}, {"queue_size": 20, "epoch_length": 5}]
)
def test_a_queue_that_a_round_renews_is_no_matter(network, batches, caplog, fits):
    assert warned(caplog, network, batches, **fits)[0] == []


# Synthetic negatives


@pytest.mark.parametrize(("sites", "count"), [(1, 51), (2, 25), (5, 10)])
def test_chk_m5(network, batches, sites, count):
    engine = build(network, batches, queue_size=1024)
    engine.receive({"others": [others(network)] * sites})
    assert engine.synthetic.count == count
    assert engine.synthetic.draw().shape == (sites * count, DIM)


def test_rounding_does_not_lose_a_draw(network, batches):
    engine = build(network, batches, queue_size=100, synthetic_fraction=0.29)
    engine.receive({"others": [others(network)]})
    assert engine.synthetic.count == 29


@pytest.mark.parametrize("extras", [{}, {"others": []}, {"others": "of eta 0"}])
def test_without_statistics_or_fraction_it_is_plain_moco(network, batches, extras):
    plain, other = copy.deepcopy(network), network
    build(plain, batches).run()
    fraction = 0.5
    if extras.get("others"):
        extras, fraction = {"others": [others(network)]}, 0.0
    engine = build(other, batches, synthetic_fraction=fraction)
    engine.receive(extras)
    engine.run()
    assert engine.synthetic is None
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), other.parameters(), strict=True))


def test_negatives_are_the_queue_and_fresh_draws_which_never_enter_it(network, batches):
    statistics = {"mu": torch.tensor([0.0] + [-2.0] * (DIM - 1)), "sigma": torch.zeros(DIM * (DIM + 1) // 2)}
    foreign = torch.eye(DIM)[0]  # what all draws are: nothing that this encoder makes
    engine = build(network, batches, synthetic_fraction=0.5)
    engine.receive({"others": [statistics]})
    seen, kept = [], []

    def look(engine):
        seen.append(engine._negatives())
        kept.append(engine.queue.keys.clone())

    engine.add_event_handler(Events.ITERATION_STARTED, look)
    engine.add_event_handler(Events.COMPLETED, look)
    engine.run()
    for negatives, keys in zip(seen, kept, strict=True):
        assert torch.equal(negatives[:SIZE], keys) and negatives.shape == (SIZE + SIZE // 2, DIM)
        assert torch.allclose(negatives[SIZE:], foreign.expand(SIZE // 2, DIM))
        assert not torch.isclose(keys @ foreign, torch.ones(SIZE), atol=1e-4).any()
    assert engine.state.output["clamped_fraction"] == 0


def test_draws_are_fresh_in_every_iteration(network, batches):
    engine, drawn = build(network, batches, synthetic_fraction=0.5), []
    engine.receive({"others": [others(network)]})
    draw = engine.synthetic.draw
    engine.synthetic.draw = lambda: drawn.append(draw()) or drawn[-1]
    engine.run()
    assert len(drawn) == len(batches) and not torch.equal(drawn[0], drawn[1])


def test_more_negatives_never_lower_the_loss():
    positive, negatives = torch.rand(5), torch.rand(5, 20)
    losses = [info_nce(positive, negatives[:, :count], 0.2).item() for count in range(1, 21)]
    assert losses == sorted(losses)


def test_chk_m2_with_a_synthetic_negative():
    positive = torch.tensor([0.9], dtype=torch.float64)
    negatives = torch.tensor([[0.2, 0.5, 0.7]], dtype=torch.float64)
    assert info_nce(positive, negatives[:, :2], 0.2).item() == pytest.approx(0.1531782071, abs=1e-9)
    assert info_nce(positive, negatives, 0.2).item() == pytest.approx(0.4274953882, abs=1e-9)


# What leaves the site


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


def test_without_probe_images_nothing_leaves(network, batches):
    engine = build(network, batches)
    engine.run()
    assert engine.extras() == {}


# State


@pytest.mark.parametrize("policy", ["copy", "keep"])
def test_a_rebuilt_engine_goes_on_where_the_last_was(network, batches, policy):
    first = build(network, batches, key_policy=policy)
    first.run()
    state = copy.deepcopy(first.state_dict())
    second = build(network, batches, key_policy=policy)
    second.load_state_dict(state)
    filled, started = [], {}
    second.augment = lambda batch: filled.append(1) or batch

    def note(engine):
        started["queue"] = engine.queue.state_dict()
        started["key"] = {name: tensor.clone() for name, tensor in engine.key_network.state_dict().items()}
        started["calls"] = len(filled)

    second.add_event_handler(Events.EPOCH_STARTED, note)
    received = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    second.run()
    assert started["calls"] == 0  # the queue is not filled again
    assert torch.equal(started["queue"]["keys"], state["queue"]["keys"])
    assert started["queue"]["pointer"] == state["queue"]["pointer"]
    expected = received if policy == "copy" else state["key_network"]
    assert all(torch.equal(started["key"][name], tensor) for name, tensor in expected.items())
    assert ("key_network" in state) == (policy == "keep")
    assert second.state_dict()["epochs_done"] == 2


def test_a_refilled_queue_begins_with_keys_of_the_received_model(network, batches):
    engine = build(network, batches, key_policy="refill", augment=lambda images: images)
    engine.run()
    state, twin = engine.state_dict(), copy.deepcopy(network)
    rebuilt, seen = build(network, batches, key_policy="refill", augment=lambda images: images), []
    rebuilt.load_state_dict(state)
    rebuilt.add_event_handler(Events.EPOCH_STARTED, lambda e: seen.append(e.queue.keys.clone()))
    rebuilt.run()
    expected = torch.cat([twin.train()(batch["image"][:, 1]).detach() for batch in batches[: SIZE // BATCH]])
    assert torch.allclose(seen[0], expected, atol=1e-6) and not torch.allclose(seen[0], state["queue"]["keys"])


def test_state_survives_a_round_without_steps(network, batches):
    first = build(network, batches)
    first.run()
    idle = build(network, batches)
    idle.load_state_dict(first.state_dict())
    assert torch.equal(idle.state_dict()["queue"]["keys"], first.queue.keys)


def test_the_same_seed_gives_the_same_model(network, batches):
    twin = copy.deepcopy(network)
    for net in (network, twin):
        engine = build(net, batches, synthetic_fraction=0.5)
        engine.receive({"others": [others(seeded_encoder(9))]})
        engine.run()
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), twin.parameters(), strict=True))


def seeded_encoder(seed):
    torch.manual_seed(seed)
    return Encoder()


def test_chk_m9_in_rounds(network, batches):
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


def test_global_random_numbers_are_left_alone(network, batches, probe):
    engine = build(network, batches, probe_loader=probe)
    engine.receive({"others": [others(network)]})
    before = torch.get_rng_state()
    engine.run()
    assert torch.equal(before, torch.get_rng_state())


# Errors


def test_stops_while_the_queue_is_filled(network, batches):
    calls = []
    engine = build(network, batches, queue_size=400)
    AbortHandler(lambda: len(calls) > 5 or calls.append(1)).attach(engine)
    with pytest.raises(Aborted):
        engine.run()
    assert engine.queue.filled < 400


def test_a_loss_that_is_no_number_is_named(network, batches):
    batches[2]["image"][0] = float("nan")
    engine = build(network, batches)
    NonFiniteLossHandler().attach(engine)
    with pytest.raises(DataError, match="step 3"):
        engine.run()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("queue_size", 0),
        ("momentum", 1.0),
        ("temperature", 0.0),
        ("synthetic_fraction", -0.1),
        ("box_cox", 0.0),
        ("key_policy", "aggregate"),
        ("max_grad_norm", 0.0),
        ("milestones", [-1]),
        ("milestone_factor", 0.0),
    ],
)
def test_numbers_out_of_range_are_refused(network, batches, option, value):
    with pytest.raises(FedMedError, match=str(value).strip("[]")):
        build(network, batches, **{option: value})


def test_other_errors(network, batches):
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


def test_state_of_another_job_is_refused(network, batches):
    first = build(network, batches, key_policy="keep")
    first.run()
    state = first.state_dict()
    second = build(network, batches, queue_size=16)
    second.load_state_dict(state)
    with pytest.raises(StateError, match="queue_size"):
        second.run()
    third = build(network, batches, key_policy="keep")
    third.load_state_dict({**state, "key_network": {}})
    with pytest.raises(StateError, match="key encoder does not fit"):
        third.run()
