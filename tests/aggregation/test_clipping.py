"""Clipping at the server: no update moves the model further than the bound."""

import json
import math

import pytest
import torch
from torch import tensor

from fedmed.aggregation.acceptance import clip_factors, clipping_record, update_norm
from fedmed.messages.answers import Update

from .conftest import mean_of, on_threads, update


def test_factor_brings_the_norm_to_the_bound():
    assert clip_factors({"a": 4.0, "b": 2.0, "c": 0.0}, 2.0) == {"a": 0.5, "b": 1.0, "c": 1.0}
    assert clip_factors({"a": 4.0}, None) == {"a": 1.0} and clip_factors({"a": math.inf}, 2.0) == {"a": 0.0}


def test_all_floating_tensors_of_an_update_share_one_factor():
    """Norm (3, 4) is 5, clipped to 2.5; the counter is a count of steps and stays."""
    state = {"w": tensor([0.0]), "bn.running_mean": tensor([0.0]), "bn.num_batches_tracked": tensor(0)}
    sent = update("a", w=tensor([3.0]), bn__running_mean=tensor([4.0]), bn__num_batches_tracked=tensor(8))
    result = mean_of(clip_norm=2.5).aggregate(state, [sent]).tensors
    assert [value.item() for value in result.values()] == [1.5, 2.0, 8]


def test_clipping_comes_before_the_mean_and_does_not_change_weights():
    updates = [update("a", 1, w=tensor([1.0])), update("b", 3, w=tensor([-100.0]))]
    rule = mean_of(clip_norm=2.0)
    assert rule.aggregate({"w": tensor([0.0])}, updates).tensors["w"].item() == 0.25 * 1 + 0.75 * -2
    assert rule.coefficients(updates) == {"a": 0.25, "b": 0.75}


def test_clipping_comes_before_the_median():
    updates = [update(site, w=tensor([v, 0.0])) for site, v in zip("abc", (1.0, 30.0, 50.0), strict=True)]
    assert mean_of(rule="median", clip_norm=10.0).aggregate({"w": torch.zeros(2)}, updates).tensors["w"][0] == 10


def test_pooled_variance_is_that_of_the_clipped_updates():
    state = {"bn.running_mean": tensor([0.5]), "bn.running_var": tensor([3.0])}
    sent = [
        update("a", 1, bn__running_mean=tensor([-0.5]), bn__running_var=tensor([-2.0])),
        update("b", 3, bn__running_mean=tensor([3.0]), bn__running_var=tensor([-4.0])),
    ]
    halved = Update("b", 0, {name: value / 2 for name, value in sent[1].tensors.items()}, 3, 10)
    result = mean_of(buffers="pooled", clip_norm=2.5).aggregate(state, sent).tensors
    expected = mean_of(buffers="pooled").aggregate(state, [sent[0], halved]).tensors
    for name in state:
        torch.testing.assert_close(result[name], expected[name])


@pytest.mark.parametrize("options", [{}, {"normalise": False, "user_weights": {"b": 0.5}}, {"buffers": "pooled"}])
def test_a_bound_that_nobody_reaches_changes_no_bit(options):
    generator = torch.Generator().manual_seed(0)
    state = {name: torch.rand(1000, generator=generator) for name in ("w", "bn.running_mean", "bn.running_var")}
    updates = [
        Update(s, 0, {n: torch.rand(1000, generator=generator) for n in state}, k + 1, 1) for k, s in enumerate("ab")
    ]
    plain, bounded = (mean_of(**options, **more).aggregate(state, updates).tensors for more in ({}, {"clip_norm": 1e9}))
    assert all(torch.equal(plain[name], bounded[name]) for name in state)


def test_norm_neither_overflows_nor_depends_on_threads_or_order():
    assert update_norm({"w": torch.full((4,), 1e30)}) == pytest.approx(2e30)
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(200_003, generator=generator) for name in "abc"}
    norms = on_threads(lambda: (update_norm(tensors), update_norm(dict(reversed(tensors.items())))))
    assert len({norm for both in norms for norm in both}) == 1
    exact = math.sqrt(sum(float(value.double().square().sum()) for value in tensors.values()))
    assert norms[0][0] == pytest.approx(exact, rel=1e-6)


def test_record_names_whose_update_was_clipped_and_is_plain_json():
    beyond = torch.full((4,), 1.7e308, dtype=torch.float64)
    updates = [update("a", w=tensor([8.0])), update("b", w=tensor([1.0])), update("c", w=beyond)]
    norms = {each.site: update_norm(each.tensors) for each in updates}
    record = json.loads(json.dumps(clipping_record(norms, 2.0), allow_nan=False))
    assert record == {"norms": {"a": 8.0, "b": 1.0, "c": None}, "clipped": {"a": 0.25, "c": 0.0}}
    assert clipping_record({}, None) == {}
