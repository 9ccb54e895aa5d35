"""Negatives: the queue, and draws from what other sites say of their features."""

import copy

import pytest
import torch
from ignite.engine import Events

from fedmed.systems.fedmoco.loss import info_nce

from .conftest import DIM, SIZE, build, others, seeded_encoder


def test_number_of_draws(network, batches):
    """floor(η N / (K - 1)) with η = 0.05 and N = 1024 (Dong and Voiculescu 2021, Eq. 5)."""
    engine = build(network, batches, queue_size=1024)
    engine.receive({"others": [others(network)] * 2})
    assert engine.synthetic.count == 25 and engine.synthetic.draw().shape == (50, DIM)


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
        seen.append(engine.keys.negatives(engine.synthetic))
        kept.append(engine.keys.queue.keys.clone())

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


def test_loss_with_a_synthetic_negative_worked_out_by_hand():
    """He et al. 2020, Eq. 1, and Dong and Voiculescu 2021, Eq. 5."""
    positive = torch.tensor([0.9], dtype=torch.float64)
    negatives = torch.tensor([[0.2, 0.5, 0.7]], dtype=torch.float64)
    assert info_nce(positive, negatives[:, :2], 0.2).item() == pytest.approx(0.1531782071, abs=1e-9)
    assert info_nce(positive, negatives, 0.2).item() == pytest.approx(0.4274953882, abs=1e-9)


def test_the_same_seed_gives_the_same_model(network, batches):
    twin = copy.deepcopy(network)
    for net in (network, twin):
        engine = build(net, batches, synthetic_fraction=0.5)
        engine.receive({"others": [others(seeded_encoder(9))]})
        engine.run()
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), twin.parameters(), strict=True))


def test_global_random_numbers_are_left_alone(network, batches, probe):
    engine = build(network, batches, probe_loader=probe)
    engine.receive({"others": [others(network)]})
    before = torch.get_rng_state()
    engine.run()
    assert torch.equal(before, torch.get_rng_state())
