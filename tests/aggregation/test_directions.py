"""Updates along common directions, with numbers worked out by hand."""

import json

import pytest
import torch

from fedmed.aggregation.rule import RoundFacts
from fedmed.errors import JobError
from fedmed.jobs.rule_spec import load_rule
from fedmed.messages.answers import Update
from fedmed.systems.fedld.server import DirectionsMean, direction_weights, gram

from .conftest import on_threads

LATER = RoundFacts(1, 9)


def updates(rows, dtype=torch.float32):
    return [Update(f"s{n}", 1, {"w": torch.tensor(row, dtype=dtype)}, 1, 10, {}, {}) for n, row in enumerate(rows)]


def step(rows, share=0.8, facts=LATER, dtype=torch.float64):
    model = {"w": torch.zeros(len(rows[0]), dtype=dtype)}
    return DirectionsMean(share).aggregate(model, updates(rows, dtype), facts).tensors["w"]


def by_projections(rows, share):
    """The equation as it is printed, vector by vector."""
    count = len(rows)
    values, vectors = torch.linalg.svd(rows @ rows.T / count)[1:]
    total = torch.zeros_like(rows[0])
    for row in rows:
        for place in range(max(1, int(share * count + 1e-9))):
            along = rows.T @ vectors[place]
            projection = (row @ along) / (along @ along) * along
            if values[place] / values.sum() >= 1e-12 and projection.norm():
                total += values[place] / values.sum() * row.norm() * projection / projection.norm()
    return total / count


def test_three_updates_and_two_directions():
    """Strengths 1.745356, 1/3 and 0.254644, of which the last is left out: 0.8 · 3 rounded down are 2 directions."""
    result = step([[2, 0, 0], [1, 1, 0], [0, 0, 1]])
    assert result.tolist() == pytest.approx([0.8285155, 0.1955860, 0.0476190], abs=1e-7)


def test_parallel_updates_give_their_mean():
    assert step([[1, 0], [3, 0]]).tolist() == pytest.approx([2, 0], abs=1e-12)


def test_an_update_against_all_others_is_turned_round_to_its_own_side():
    """Of [1, 0], [1, 0] and [-1, 0]: (1 + 1 - 1) / 3."""
    assert step([[1, 0], [1, 0], [-1, 0]]).tolist() == pytest.approx([1 / 3, 0], abs=1e-12)


@pytest.mark.parametrize("sites", [1, 2, 3, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identical_updates_give_that_update(sites, dtype):
    row = torch.linspace(-1, 2, 40)
    result = step([row.tolist()] * sites, dtype=dtype)
    assert torch.allclose(result, row.to(dtype), rtol=1e-6, atol=1e-7 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize(("sites", "size", "share"), [(2, 3, 0.8), (4, 100, 0.8), (5, 40_000, 0.5), (6, 7, 1.0)])
def test_equals_the_equation_vector_by_vector(sites, size, share):
    rows = torch.randn(sites, size, dtype=torch.float64, generator=torch.Generator().manual_seed(sites))
    assert torch.allclose(step(rows.tolist(), share), by_projections(rows, share), atol=1e-10)


def test_the_first_round_numbers_and_statistics_are_plain_means_and_idle_sites_do_not_count():
    rows = [[2.0, 0, 0], [1, 1, 0], [0, 0, 1]]
    assert step(rows, facts=RoundFacts(0, 9)).tolist() == pytest.approx([1, 1 / 3, 1 / 3])
    model = {"scale": torch.zeros(1), "n.running_var": torch.ones(3), "n.num_batches_tracked": torch.tensor(4)}
    sent = []
    for place, row in enumerate(rows):
        local = {"scale": torch.tensor([row[0]]), "n.running_var": torch.tensor(row)}
        sent.append(Update(f"s{place}", 1, {**local, "n.num_batches_tracked": torch.tensor(place)}, 1, 9, {}, {}))
    still = {name: torch.zeros_like(tensor) for name, tensor in model.items()}
    outcome = DirectionsMean().aggregate(model, [*sent, Update("idle", 1, still, 0, 9, {}, {})], LATER)
    assert outcome.tensors["scale"].tolist() == pytest.approx([1]) and outcome.tensors["n.num_batches_tracked"] == 6
    assert outcome.tensors["n.running_var"].tolist() == pytest.approx([2, 4 / 3, 4 / 3])
    assert outcome.coefficients == {"idle": 0.0, **dict.fromkeys(("s0", "s1", "s2"), pytest.approx(1 / 3))}


def test_nobody_moves_and_nothing_changes():
    assert step([[0, 0], [0, 0]]).tolist() == [0, 0]
    assert direction_weights(torch.zeros(3, 3, dtype=torch.float64), 0.8) == [0, 0, 0]


def test_neither_the_order_of_answers_nor_the_number_of_threads_changes_a_bit():
    rows = torch.randn(4, 100_000, generator=torch.Generator().manual_seed(1))
    model, sent = {"w": torch.zeros(100_000)}, updates(rows.tolist())
    moved = lambda order: DirectionsMean().aggregate(model, sent[::order], LATER).tensors["w"]  # noqa: E731
    result = on_threads(lambda: (moved(1), moved(-1)), (1, 4))
    assert all(torch.equal(result[0][0], other) for both in result for other in both)


def test_names_of_sites_have_no_influence():
    rows = torch.randn(4, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(step(rows.tolist()), step(rows.flip(0).tolist()), atol=1e-12)


def test_an_update_that_is_too_long_is_scaled_down_first():
    model, sent = {"w": torch.zeros(2)}, updates([[1.0, 0], [30, 0]])
    result = DirectionsMean(clip_norm=3.0).aggregate(model, sent, LATER).tensors["w"]
    assert result.tolist() == pytest.approx([2, 0], abs=1e-5)


def test_products_of_pairs():
    rows = torch.tensor([[1.0, 2], [3, 4], [0, -1]])
    assert torch.equal(gram(list(rows)), (rows @ rows.T).double())
    big = torch.randn(2, 40_000, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    assert torch.allclose(gram([row.view(200, 200) for row in big]), big @ big.T)


@pytest.mark.parametrize("share", [0, 1.1, "0.8", True])
def test_a_share_that_is_not_one(share):
    with pytest.raises(JobError, match="'share' is .*give a number above 0 and of at most 1"):
        DirectionsMean(share)


def test_a_job_names_it():
    spec = {"path": "fedmed.systems.fedld.server.DirectionsMean", "args": {"share": 0.5}}
    rule = load_rule(json.loads(json.dumps(spec)))
    assert rule.state() == {} and rule.aggregate({"w": torch.zeros(2)}, updates([[1.0, 0], [3, 0]]), LATER)
