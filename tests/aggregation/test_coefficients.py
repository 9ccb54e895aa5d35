"""Coefficients of Yang et al. 2021, Eq. 3."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmed.aggregation.weighted_mean import check_user_weights, site_weights
from fedmed.errors import FedMedError, JobError

SITES = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.tuples(st.integers(0, 10_000), st.floats(0.001, 10)),
    min_size=1,
    max_size=8,
).filter(lambda sites: any(steps for steps, _ in sites.values()))


def split(sites):
    return {site: steps for site, (steps, _) in sites.items()}, {site: weight for site, (_, weight) in sites.items()}


@pytest.mark.parametrize(
    ("steps", "normalise", "expected"),
    [
        ((400, 400), False, (0.5, 0.25)),
        ((400, 400), True, (2 / 3, 1 / 3)),
        ((400, 100), False, (0.8, 0.1)),
        ((400, 100), True, (8 / 9, 1 / 9)),
    ],
)
def test_both_readings_of_equation_3(steps, normalise, expected):
    weights = site_weights(dict(zip("ab", steps, strict=True)), {"b": 0.5}, normalise)
    assert weights == pytest.approx(dict(zip("ab", expected, strict=True)))


def test_a_site_without_a_user_weight_counts_with_one():
    assert site_weights({"a": 3, "b": 1}) == {"a": 0.75, "b": 0.25}


@given(SITES)
def test_normalised_coefficients_sum_to_one(sites):
    assert math.fsum(site_weights(*split(sites)).values()) == pytest.approx(1, abs=1e-12)


@given(SITES, st.booleans(), st.randoms())
def test_order_of_sites_changes_no_bit(sites, normalise, random):
    shuffled = list(sites.items())
    random.shuffle(shuffled)
    expected, got = (site_weights(*split(s), normalise) for s in (sites, dict(shuffled)))
    assert got == expected
    assert list(got) == sorted(sites)


@given(SITES, st.booleans())
def test_renaming_sites_permutes_their_coefficients(sites, normalise):
    """A site's coefficient depends on its numbers, not on its name: reversed names sort in the opposite order."""
    names = sorted(sites)
    renamed = dict(zip(names, reversed(names), strict=True))
    before = site_weights(*split(sites), normalise)
    after = site_weights(*split({renamed[site]: value for site, value in sites.items()}), normalise)
    assert after == {renamed[site]: weight for site, weight in before.items()}


@pytest.mark.parametrize(("steps", "weights"), [({"a": 0, "b": 0}, None), ({"a": 5}, {"a": 0}), ({}, None)])
@pytest.mark.parametrize("normalise", [True, False])
def test_nothing_to_weigh_is_an_error(steps, weights, normalise):
    with pytest.raises(FedMedError, match="no site has a weight above 0"):
        site_weights(steps, weights, normalise)


@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf, "1", True, None])
def test_a_user_weight_that_is_no_weight_is_refused(weight):
    with pytest.raises(JobError, match="site 'b'.*finite number"):
        site_weights({"a": 1, "b": 1}, {"b": weight})


def test_a_user_weight_for_an_unknown_site_is_refused():
    with pytest.raises(JobError, match="unknown site 'ct_nort'; the sites are ct_north, ct_south"):
        check_user_weights({"ct_nort": 1.0}, ["ct_south", "ct_north"])


def test_negative_steps_are_refused():
    with pytest.raises(FedMedError, match="site 'b' reports -1 steps"):
        site_weights({"a": 1, "b": -1})
