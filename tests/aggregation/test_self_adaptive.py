import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedmed.errors import FedMedError, JobError
from fedmed.messages.answers import Update
from fedmed.systems.fedmoco.method import SELF_ADAPTIVE
from fedmed.systems.fedmoco.server import self_adaptive_weights

from .conftest import mean_of

BY = {"by": SELF_ADAPTIVE, "name": "rsa", "form": "gap"}


def weights(*r, **options):
    return list(self_adaptive_weights(dict(zip("abcdef", r, strict=False)), **options).values())


def test_weights_worked_out_by_hand():
    """Dong and Voiculescu 2021, Eq. 7."""
    assert weights(0.9, 0.5, 0.1) == pytest.approx([0.1 / 1.5, 0.5 / 1.5, 0.6], abs=1e-12)
    assert weights(1, 1, 1) == [1 / 3] * 3
    assert weights(1, 1, 0.99) == [0, 0, 1]  # two idle sites, one that trained
    assert weights(-1, 1, 1) == [1, 0, 0]
    assert weights(0.9, 0.5, 0.1, form="softmax") == pytest.approx([0.212, 0.316, 0.472], abs=5e-4)


def test_the_only_site_that_trained_is_the_aggregate():
    state = {"weight": torch.tensor([0.1, -0.7])}

    def update(site, change, r, n_samples):
        return Update(site, 0, {"weight": torch.full((2,), change)}, 4, n_samples, {}, {"rsa": r})

    updates = [update("idle", 0.0, 1.0, 900), update("idle too", 0.0, 1.0, 100), update("trained", 0.3, 0.99, 5)]
    result = mean_of(weighting=BY).aggregate(state, updates).tensors
    torch.testing.assert_close(result["weight"], state["weight"] + 0.3, rtol=2e-7, atol=0)  # rounded once


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6), st.sampled_from(["gap", "softmax"]), st.floats(0, 1))
def test_weights_are_a_mean_above_the_floor(r, form, share):
    floor = share / len(r)
    result = weights(*r, form=form, floor=floor)
    assert math.fsum(result) == pytest.approx(1, abs=1e-12)
    assert min(result) >= floor - 1e-12 and min(result) >= 0


def test_the_floor_takes_from_the_others_in_proportion():
    assert weights(1, 0.5, 0, floor=0.1) == pytest.approx([0.1, 0.3, 0.6])
    assert weights(0.9, 0.5, 0.1, floor=0.01) == pytest.approx([0.1 / 1.5, 0.5 / 1.5, 0.6])
    # shares 0, .21, .79: the rest of .8 gives the second .168, which is below the floor as well
    assert weights(1, 1 - 0.21, 1 - 0.79, floor=0.2) == pytest.approx([0.2, 0.2, 0.6])


def test_order_of_sites_has_no_influence():
    assert list(self_adaptive_weights({"b": 0.1, "a": 0.7})) == ["a", "b"]
    assert self_adaptive_weights({"b": 0.1, "a": 0.7}) == self_adaptive_weights({"a": 0.7, "b": 0.1})


def test_values_beyond_a_correlation_are_clipped():
    assert weights(-7, 1, 0) == weights(-1, 1, 0)
    assert weights(1 + 1e-9, 0.5) == [0, 1]


def test_errors():
    with pytest.raises(FedMedError, match="at least one site"):
        self_adaptive_weights({})
    with pytest.raises(FedMedError, match="site 'b' is nan"):
        weights(0.5, math.nan)
    with pytest.raises(FedMedError, match="site 'a' is '0.5'"):
        weights("0.5")
    with pytest.raises(JobError, match="'linear'"):
        weights(0.5, form="linear")
    with pytest.raises(JobError, match="floor is 0.6; 2 sites.*0 to 0.5"):
        weights(0.5, 0.5, floor=0.6)
