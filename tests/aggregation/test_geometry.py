"""Similarity and distance of a round's updates."""

import pytest
import torch

from fedmed.aggregation.geometry import update_geometry
from fedmed.messages.answers import Update


def updates(*vectors, **more):
    names = [chr(ord("a") + place) for place in range(len(vectors))]
    made = [torch.tensor(vector) for vector in vectors]
    return [
        Update(site, 0, {"w": local[:1], "v": local[1:].reshape(1, -1), **more}, 1, 1)
        for site, local in zip(names, made, strict=True)
    ]


def test_three_updates_worked_out_by_hand():
    """Markert 2022, Eq. 4.19 and 4.20; U = [1, 0.75]. The weighted mean of the distances is the updates' variance."""
    result = update_geometry(updates([1.0, 0.0], [0.0, 1.0], [2.0, 2.0]), {"a": 0.5, "b": 0.25, "c": 0.25})
    assert [local["cosine"] for local in result.values()] == pytest.approx([0.8, 0.6, 0.98994949])
    assert [local["distance"] for local in result.values()] == pytest.approx([0.5625, 1.0625, 2.5625])
    assert [local["norm"] for local in result.values()] == pytest.approx([1, 1, 8**0.5])
    assert 0.5 * result["a"]["distance"] + 0.25 * (result["b"]["distance"] + result["c"]["distance"]) == 1.1875


def test_equal_updates_point_one_way_and_zero_ones_nowhere():
    same = update_geometry(updates([3.0, 4.0], [3.0, 4.0]), {"a": 2, "b": 6})
    assert same == dict.fromkeys("ab", {"norm": 5, "distance": 0, "cosine": pytest.approx(1)})
    zero = update_geometry(updates([0.0, 0.0], [1.0, 0.0]), {"a": 0.5, "b": 0.5})
    assert "cosine" not in zero["a"] and zero["b"]["cosine"] == pytest.approx(1)
    assert update_geometry([], {}) == {} == update_geometry(updates([1.0]), {"a": 1}), "nothing to compare it with"


def test_only_parameters_that_all_sites_send_are_compared():
    made = updates([1.0, 0.0], [1.0, 0.0])
    made[0].tensors |= {"head": torch.tensor([9.0])}
    made[1].tensors |= {"norm.running_mean": torch.tensor([7.0])}
    made[0].tensors |= {"norm.running_mean": torch.tensor([5.0])}
    assert update_geometry(made, {"a": 1, "b": 1})["a"] == {"norm": 1, "distance": 0, "cosine": pytest.approx(1)}


def test_it_equals_a_plain_computation_in_blocks_of_any_size(monkeypatch):
    """Of updates that have much in common, too: distances then are small differences of large numbers."""
    generator = torch.Generator().manual_seed(0)
    common = 100 * torch.randn(1001, generator=generator)
    vectors = [common + 0.01 * torch.randn(1001, generator=generator) for _ in range(4)]
    made, shares = updates(*[vector.tolist() for vector in vectors]), {"a": 4, "b": 3, "c": 2, "d": 1}
    stacked = torch.stack(vectors).double()
    mean = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64) @ stacked
    expected = (stacked - mean).square().sum(1).tolist()
    for block in (1 << 16, 7):
        monkeypatch.setattr("fedmed.aggregation.geometry.BLOCK", block)
        result = update_geometry(made, shares)
        assert [local["distance"] for local in result.values()] == pytest.approx(expected, rel=1e-3)
        assert [local["norm"] for local in result.values()] == pytest.approx(stacked.norm(dim=1).tolist())
