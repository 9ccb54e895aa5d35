"""Queue and key encoder from one round to the next."""

import copy

import pytest
import torch
from ignite.engine import Events

from fedmed.errors import Aborted, StateError
from fedmed.training.trainer import AbortHandler

from .conftest import BATCH, SIZE, build


def warned(caplog, network, batches, state=(), **options):
    """Return an engine's warnings about its queue; ``state``: of the round before."""
    caplog.clear()
    engine = build(network, batches, **options)
    engine.load_state_dict(dict(state))
    with caplog.at_level("WARNING", "fedmed.site"):
        engine.run()
    return [record.getMessage() for record in caplog.records], engine.state_dict()


def test_a_queue_longer_than_a_round_gives_one_warning(network, batches, caplog):
    reported, state = warned(caplog, network, batches, queue_size=17)  # a round: four batches of four
    assert len(reported) == 1 and "17 keys, but a round makes only 16 (4 steps of 4 images)" in reported[0]
    assert "queue_size to 16 or less or key_policy to refill" in reported[0]
    assert warned(caplog, network, batches, state, queue_size=17)[0] == []


@pytest.mark.parametrize(
    "fits", [{"queue_size": 16}, {"queue_size": 17, "key_policy": "refill"}, {"queue_size": 20, "epoch_length": 5}]
)
def test_a_queue_that_a_round_renews_gives_no_warning(network, batches, caplog, fits):
    assert warned(caplog, network, batches, **fits)[0] == []


def test_stops_while_the_queue_is_filled(network, batches):
    calls = []
    engine = build(network, batches, queue_size=400)
    AbortHandler(lambda: len(calls) > 5 or calls.append(1)).attach(engine)
    with pytest.raises(Aborted):
        engine.run()
    assert engine.keys.queue.filled < 400


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
        started["queue"] = engine.keys.queue.state_dict()
        started["key"] = {name: tensor.clone() for name, tensor in engine.keys.network.state_dict().items()}
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


def test_rounds_that_keep_all_are_one_run(noise, network, batches):
    """A site alone, with whose model nothing is averaged, trains as plain MoCo does."""
    whole, rounds, state, augment = copy.deepcopy(network), copy.deepcopy(network), {}, noise()
    expected = build(whole, batches, epoch_length=3 * len(batches))
    expected.run()
    optimizer = None
    for _ in range(3):
        engine = build(rounds, batches, key_policy="keep", augment=augment)
        engine.load_state_dict(copy.deepcopy(state))
        if optimizer is not None:
            engine.optimizer.load_state_dict(optimizer)
        engine.run()
        state, optimizer = engine.state_dict(), engine.optimizer.state_dict()
    for one, other in ((whole, rounds), (expected.keys.network, engine.keys.network)):
        assert all(torch.equal(t, other.state_dict()[name]) for name, t in one.state_dict().items())
    assert torch.equal(expected.keys.queue.keys, engine.keys.queue.keys)


def test_a_refilled_queue_begins_with_keys_of_the_received_model(network, batches):
    engine = build(network, batches, key_policy="refill", augment=lambda images: images)
    engine.run()
    state, twin = engine.state_dict(), copy.deepcopy(network)
    rebuilt, seen = build(network, batches, key_policy="refill", augment=lambda images: images), []
    rebuilt.load_state_dict(state)
    rebuilt.add_event_handler(Events.EPOCH_STARTED, lambda e: seen.append(e.keys.queue.keys.clone()))
    rebuilt.run()
    expected = torch.cat([twin.train()(batch["image"][:, 1]).detach() for batch in batches[: SIZE // BATCH]])
    assert torch.allclose(seen[0], expected, atol=1e-6) and not torch.allclose(seen[0], state["queue"]["keys"])


def test_state_survives_a_round_without_steps(network, batches):
    first = build(network, batches)
    first.run()
    idle = build(network, batches)
    idle.load_state_dict(first.state_dict())
    assert torch.equal(idle.state_dict()["queue"]["keys"], first.keys.queue.keys)


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
