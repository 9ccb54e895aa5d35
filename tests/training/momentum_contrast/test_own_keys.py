"""Keys of a query's own image: told from the others, reported, and left out where a site is small."""

import copy

import pytest
import torch
from ignite.engine import Events

from fedmed.data.cache import CaseCacheDataset
from fedmed.data.cases import training_loader
from fedmed.errors import FedMedError
from fedmed.systems.fedmoco.keys import MomentumKeys
from fedmed.systems.fedmoco.loss import info_nce
from fedmed.systems.fedmoco.options import ContrastOptions

from .conftest import BATCH, build


@pytest.fixture
def numbered(batches):
    """The batches of conftest.py as if they were of twelve images: each half of a batch is seen again in the next."""
    numbers = [[0, 1, 2, 3], [2, 3, 4, 5], [6, 7, 8, 9], [8, 9, 10, 11]]
    return [{**batch, "number": torch.tensor(local)} for batch, local in zip(batches, numbers, strict=True)]


def weights(network):
    return torch.cat([tensor.flatten().double() for tensor in network.state_dict().values()])


def outputs(engine):
    seen = []
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda e: seen.append(dict(e.state.output)))
    engine.run()
    return seen


def test_own_keys_are_no_negatives_in_a_loss_written_out(noise, network, numbered):
    query, key = copy.deepcopy(network).train(), copy.deepcopy(network).train()
    seen = outputs(build(network, numbered, own_keys="leave_out"))
    optimizer, augment = torch.optim.SGD(query.parameters(), lr=0.1, momentum=0.9), noise()
    with torch.no_grad():
        queue = [(k, n) for b in numbered[:2] for k, n in zip(key(augment(b["image"][:, 1])), b["number"], strict=True)]
    for batch, output in zip(numbered, seen, strict=True):
        first, second = augment(batch["image"][:, 0]), augment(batch["image"][:, 1])
        with torch.no_grad():
            for slow, fast in zip(key.parameters(), query.parameters(), strict=True):
                slow.copy_(0.9 * slow + 0.1 * fast)
            keys = key(second)
        losses, share = [], 0
        for one, local, number in zip(query(first), keys, batch["number"], strict=True):
            others = torch.stack([k for k, n in queue if n != number])
            share += len(others) < len(queue)
            losses.append(info_nce((one @ local)[None], (others @ one)[None], 0.2))
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue = queue[BATCH:] + list(zip(keys, batch["number"], strict=True))
        assert output["loss"].item() == pytest.approx(loss.item(), abs=1e-5)
        assert output["own_keys"].item() == share / BATCH
    assert torch.allclose(weights(network), weights(query), atol=1e-5)
    assert [output["own_keys"].item() for output in seen] == [1, 1, 0, 0.5]


@pytest.mark.parametrize(("images", "left_out"), [(None, False), (31, True), (32, False)])
def test_auto_leaves_them_out_at_a_small_site_and_changes_no_bit_at_others(
    network, batches, numbered, images, left_out
):
    plain, noted = copy.deepcopy(network), copy.deepcopy(network)
    build(plain, batches).run()
    engine = build(noted, numbered, images=images)
    seen = outputs(engine)
    assert engine.keys.drops_own_keys == left_out == (not torch.equal(weights(plain), weights(noted)))
    assert seen[0]["own_keys"] == 1  # reported in any case
    kept = copy.deepcopy(network)
    build(kept, numbered, own_keys="keep", images=1).run()
    assert torch.equal(weights(plain), weights(kept))


def test_sizes_of_the_paper_are_not_small_and_those_of_the_demo_are():
    for queue, images, small in ((1024, 10_000, False), (1024, 5_000, False), (64, 352, False), (64, 250, True)):
        assert ContrastOptions(queue_size=queue).drops_own_keys(images) == small
    assert ContrastOptions(own_keys="leave_out").drops_own_keys(10**6)
    assert not ContrastOptions(own_keys="keep").drops_own_keys(1)


def test_the_images_of_the_keys_are_part_of_the_state(network, numbered):
    """A round that goes on from what was saved is the one of a process that never ended."""
    first = build(network, numbered, own_keys="leave_out", key_policy="keep")
    first.run()
    state = copy.deepcopy(first.state_dict())
    assert state["queue"]["images"].tolist() == [6, 7, 8, 9, 8, 9, 10, 11]
    models = []
    for forget in (False, True):
        again = copy.deepcopy(network)
        engine = build(again, list(reversed(numbered)), own_keys="leave_out", key_policy="keep")
        kept = copy.deepcopy(state)
        if forget:
            del kept["queue"]["images"]  # as an earlier FedMed saved it: nothing is known of the keys
        engine.load_state_dict(kept)
        models.append((outputs(engine)[0]["own_keys"].item(), weights(again)))
    assert (models[0][0], models[1][0]) == (1, 0) and not torch.equal(models[0][1], models[1][1])


@pytest.mark.parametrize("draws", [0, 3])
def test_draws_of_other_sites_are_of_no_image(draws):
    keys = MomentumKeys(ContrastOptions(queue_size=4, own_keys="leave_out"), "cpu")
    keys.enqueue(torch.eye(4), torch.tensor([0, 1, 2, 1]))
    source = type("Draws", (), {"draw": lambda self: torch.ones(draws, 4)})() if draws else None
    result, share = keys.similarities(torch.ones(2, 4), torch.tensor([1, 5]), source)
    rest = [1.0] * 4 + [4.0] * draws
    low = -torch.inf
    assert result.tolist() == [[1.0, low, 1.0, low, *rest[4:]], rest] and share == 0.5


def test_a_site_of_a_single_image_has_nothing_to_learn_and_no_nan(network, numbered):
    numbered = [{**batch, "number": torch.zeros(BATCH, dtype=torch.int64)} for batch in numbered]
    seen = outputs(build(network, numbered, own_keys="leave_out"))
    assert all(output["loss"] == 0 for output in seen)
    moved = {name for name, tensor in network.named_parameters() if tensor.grad is not None and tensor.grad.any()}
    assert not moved and torch.isfinite(weights(network)).all()


def test_leaving_out_needs_numbered_images(network, batches):
    with pytest.raises(FedMedError, match="do not say which image is which.*numbered: true.*own_keys to keep"):
        build(network, batches, own_keys="leave_out").run()


@pytest.mark.parametrize(("images", "low", "high"), [(352, 0.02, 0.03), (87, 0.36, 0.46)])
def test_how_many_queries_meet_their_own_key(images, low, high):
    """A queue of 64, batches of 32, three passes after a fill: N (N + B) / 2 n² of all where n is larger than N."""
    dataset = CaseCacheDataset([{"image": torch.zeros(1)}] * images, [lambda case: case], numbered=True)
    met, steps = [], 3 * images // 32
    for seed in range(3):
        keys = MomentumKeys(ContrastOptions(queue_size=64), "cpu", images)
        for batch in list(training_loader(dataset, 32, steps, seed + 100))[:2]:
            keys.enqueue(torch.ones(32, 2), batch["number"])
        for batch in training_loader(dataset, 32, steps, seed):
            met.append(keys.similarities(torch.ones(32, 2), batch["number"], None)[1].item())
            keys.enqueue(torch.ones(32, 2), batch["number"])
    assert low < sum(met) / len(met) < high
