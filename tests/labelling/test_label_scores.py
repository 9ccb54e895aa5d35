import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedmed.errors import FedMedError
from fedmed.labelling.views import predictive_uncertainty, view_disagreement

UNIT = hnp.arrays("float32", hnp.array_shapes(min_dims=2, max_dims=4, max_side=4), elements=st.floats(0, 1, width=32))


def two_channels(p):
    return torch.cat([1 - p, p])


def test_certain_is_zero_and_undecided_is_one():
    for p in (torch.zeros(1, 3, 4, 5), torch.ones(1, 3, 4, 5), two_channels(torch.ones(1, 3, 3))):
        assert predictive_uncertainty(p) == 0
    assert predictive_uncertainty(torch.full((1, 3, 4, 5), 0.5)) == 1
    assert predictive_uncertainty(torch.full((2, 3, 4), 0.5)) == 1
    assert predictive_uncertainty(torch.full((5,), 0.2)) == pytest.approx(1)


def test_entropy_by_hand():
    quarter = -(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))
    volume = torch.tensor([[0.25, 1.0]])
    assert predictive_uncertainty(volume) == pytest.approx(quarter / 2)
    assert predictive_uncertainty(two_channels(volume)) == pytest.approx(quarter / 2)  # both ways of writing it
    three = -(0.5 * math.log2(0.5) + 0.5 * math.log2(0.25)) / math.log2(3)
    assert predictive_uncertainty(torch.tensor([0.5, 0.25, 0.25])) == pytest.approx(three)
    labels = torch.tensor([0.25, 0.5, 1.0])  # three findings that may hold together
    assert predictive_uncertainty(labels) == pytest.approx((quarter + 1 + 0) / 3)


def test_disagreement_by_hand():
    p, q = torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([[1.0, 1.0, 0.0]])
    assert view_disagreement(p, q) == pytest.approx(1 - (2 * 1 + 1) / (1.25 + 2 + 1))
    assert view_disagreement(two_channels(p), two_channels(q)) == pytest.approx(view_disagreement(p, q))
    assert view_disagreement(torch.tensor([0.9, 0.1]), torch.tensor([0.4, 0.6])) == pytest.approx(0.5)
    assert view_disagreement(torch.tensor([0.9, 0.9, 0.0]), torch.tensor([0.6, 0.9, 0.0])) == pytest.approx(0.1)


def test_labels_that_hold_together_may_sum_to_one_by_chance():
    quarter = -(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))
    labels, others = torch.tensor([0.25, 0.75, 0.0]), torch.tensor([0.75, 0.25, 0.0])
    assert predictive_uncertainty(labels, together=True) == pytest.approx(2 * quarter / 3)
    assert predictive_uncertainty(labels) == pytest.approx(quarter / math.log2(3))
    assert view_disagreement(labels, others, together=True) == pytest.approx(1 / 3)
    assert view_disagreement(labels, others) == pytest.approx(1 / 2)


def test_nothing_found_agrees_and_a_lost_small_lesion_comes_before_a_trimmed_large_one():
    nothing = torch.zeros(1, 20, 20, 20)
    assert view_disagreement(nothing, nothing) == 0
    assert view_disagreement(nothing + 0.01, nothing + 0.012) < 0.1
    small, large, trimmed = nothing.clone(), nothing.clone(), nothing.clone()
    small[0, :3, :3, :3], large[0, :10], trimmed[0, :9] = 1, 1, 1  # 27 voxels against 4000, of which 400 are lost
    assert view_disagreement(small, nothing) > 0.9 > 0.1 > view_disagreement(large, trimmed)


@settings(max_examples=50, deadline=None)
@given(UNIT, st.randoms(use_true_random=False))
def test_bounds_symmetry_and_order_of_voxels(values, random):
    p = torch.from_numpy(values)
    order = list(range(p[0].numel()))
    random.shuffle(order)
    q = p.flatten(1)[:, order].reshape(p.shape)
    mixed = view_disagreement(p, q)
    assert 0 <= predictive_uncertainty(p) <= 1 + 1e-9 and -1e-9 <= mixed <= 1
    assert predictive_uncertainty(q) == pytest.approx(predictive_uncertainty(p))
    assert view_disagreement(q, p) == pytest.approx(mixed)
    assert view_disagreement(p, p) == pytest.approx(0)


@pytest.mark.parametrize("bad", [torch.tensor([[1.5, 0.0]]), torch.tensor([[float("nan")]]), torch.zeros(1, 0)])
def test_what_is_no_probability_is_an_error(bad):
    with pytest.raises(FedMedError, match="probabilities"):
        predictive_uncertainty(bad)
    with pytest.raises(FedMedError, match="probabilities"):
        view_disagreement(bad, bad)


def test_views_of_different_shape_are_an_error():
    with pytest.raises(FedMedError, match=r"\(1, 2\) and \(1, 3\)"):
        view_disagreement(torch.zeros(1, 2), torch.zeros(1, 3))
