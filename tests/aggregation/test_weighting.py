"""Coefficients of Yang et al. 2021, Eq. 3, and what else sites are weighed by."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedmed.aggregation.self_adaptive import SelfAdaptiveWeighting
from fedmed.aggregation.weighting import SampleWeighting, check_user_weights, site_weights
from fedmed.errors import FedMedError, JobError, UpdateRefused
from fedmed.jobs.rule_spec import load_rule, rule_spec
from fedmed.messages.answers import Update
from fedmed.methods.fedmoco import SELF_ADAPTIVE

SITES = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.tuples(st.integers(0, 10_000), st.floats(0.001, 10)),
    min_size=1,
    max_size=8,
).filter(lambda sites: any(steps for steps, _ in sites.values()))

BY = {"by": SELF_ADAPTIVE, "name": "rsa", "form": "gap"}


def mean_of(**flat):
    """The rule that these flat arguments of a job ask for."""
    return load_rule(rule_spec(flat))


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


def sent(site, r=None, n_steps=4, n_samples=10):
    return Update(site, 0, {}, n_steps, n_samples, {}, {} if r is None else {"rsa": r})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("iterations", {"a": 0.2, "b": 0.8, "idle": 0.0}),
        ("samples", {"a": 0.75, "b": 0.25, "idle": 0.0}),
        ("uniform", {"a": 0.5, "b": 0.5, "idle": 0.0}),
        (BY, {"a": 1 / 6, "b": 5 / 6, "idle": 0.0}),
    ],
)
def test_what_sites_are_weighed_by_and_an_idle_one_never_counts(kind, expected):
    updates = [sent("a", 0.9, 1, 30), sent("b", 0.5, 4, 10), sent("idle", 1.0, 0, 999)]
    rule = mean_of(weighting=kind)
    assert rule.coefficients(updates) == pytest.approx(expected)
    assert rule.coefficients(updates[::-1]) == rule.coefficients(updates)


def test_user_weights_multiply_and_a_weight_of_zero_has_no_part_in_the_gaps():
    updates = [sent("a", 0.5), sent("b", 0.5), sent("c", 0.0)]
    weighed = mean_of(weighting=BY, user_weights={"a": 3.0}).coefficients(updates)
    assert weighed == pytest.approx({"a": 0.75 / 1.5, "b": 0.25 / 1.5, "c": 0.5 / 1.5})
    alone = mean_of(weighting=BY, user_weights={"b": 0.0, "c": 0.0})
    assert alone.coefficients([sent("a", 1.0), *updates[1:]]) == {"a": 1.0, "b": 0.0, "c": 0.0}
    assert alone.weighting.of_round([sent("a", 1.0), sent("b")], alone.user_weights) == (alone.weighting, [])


def test_form_and_floor_reach_the_weights():
    updates = [sent("a", 0.9), sent("b", 0.5), sent("c", 0.1)]
    soft = mean_of(weighting={**BY, "form": "softmax"}).coefficients(updates)
    assert list(soft.values()) == pytest.approx([0.212, 0.316, 0.472], abs=1e-3)
    assert mean_of(weighting={**BY, "floor": 0.25}).coefficients(updates)["a"] == 0.25


@pytest.mark.parametrize(
    ("updates", "chosen", "lacking"),
    [
        ([sent("a", 0.5), sent("b", 0.1)], "self_adaptive", []),
        ([sent("a", 0.5), sent("c"), sent("b")], "samples", [["b", "c"]]),
        ([sent("a", 0.5), sent("b"), sent("c", 0.5, n_samples=0)], "uniform", [["b"], ["c"]]),
        ([sent("a", 0.5), sent("idle", n_steps=0, n_samples=0)], "self_adaptive", []),
    ],
)
def test_a_round_in_which_something_is_missing_is_weighed_otherwise_for_all(updates, chosen, lacking):
    for order in itertools.permutations(updates):
        weighting, reasons = SelfAdaptiveWeighting("rsa").of_round(order, {})
        assert (weighting.kind, [sites for sites, _ in reasons]) == (chosen, lacking)


def test_the_choice_of_a_round_holds_for_tensors_that_only_some_send():
    state = {"all": torch.zeros(1), "some": torch.zeros(1)}
    updates = [sent("a", 0.5, n_samples=30), sent("b", n_samples=10), sent("c", 0.0, n_samples=30)]
    for k, update in enumerate(updates):
        update.tensors = {"all": torch.tensor([float(k)])} | ({} if update.site == "b" else {"some": torch.ones(1) * k})
    result = mean_of(weighting=BY).aggregate(state, updates).tensors
    assert result["some"].item() == 1.0, "by samples, although both senders told their change"
    assert result["all"].item() == pytest.approx(1.0)


@pytest.mark.parametrize("r", [math.nan, math.inf, 1.0001, -1.5, "0.5", True, None, torch.tensor(0.5)])
def test_a_similarity_that_is_none_refuses_the_update(r):
    update = sent("a", 0.5)
    update.extras["rsa"] = r
    with pytest.raises(UpdateRefused, match=r"'a' refused: its 'rsa' is .*; it must be a number in \[-1, 1\]"):
        SelfAdaptiveWeighting("rsa").check_update(update)
    SampleWeighting().check_update(update)
    SelfAdaptiveWeighting("rsa").check_update(sent("a", -1.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weighting": "size"}, "'weighting' is 'size'; use iterations, samples, uniform, reported"),
        ({"weighting": {"by": "samples", "floor": 0.1}}, "SampleWeighting are wrong: .*takes no arguments"),
        ({"weighting": {"by": "samples", "form": "gap"}}, "SampleWeighting are wrong: .*takes no arguments"),
        ({"weighting": {**BY, "form": "square"}}, "'form' is 'square'; use gap or softmax"),
        ({"weighting": {**BY, "floor": 1.0}}, "'floor' is 1.0"),
        ({"weighting": {**BY, "floor": True}}, "'floor' is True"),
        ({"weighting": BY, "rule": "median"}, "no meaning under rule 'median'"),
    ],
)
def test_weightings_that_cannot_be_meant_are_refused(arguments, message):
    with pytest.raises(JobError, match=message):
        mean_of(**arguments)


def test_a_floor_that_not_all_sites_can_have_is_refused():
    SelfAdaptiveWeighting("rsa", floor=0.25).check_sites(4)
    with pytest.raises(JobError, match="'floor' is 0.3; 4 sites cannot all count so much: at most 0.25"):
        SelfAdaptiveWeighting("rsa", floor=0.3).check_sites(4)
