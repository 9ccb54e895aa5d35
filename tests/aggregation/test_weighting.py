"""Weightings of sites."""

import itertools
import math

import pytest
import torch

from fedmed.aggregation.weighted_mean import SampleWeighting
from fedmed.errors import JobError, UpdateRefused
from fedmed.messages.answers import Update
from fedmed.systems.fedmoco.method import SELF_ADAPTIVE
from fedmed.systems.fedmoco.server import SelfAdaptiveWeighting

from .conftest import mean_of

BY = {"by": SELF_ADAPTIVE, "name": "rsa", "form": "gap"}


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


def test_sites_with_as_many_samples_count_as_if_uniform():
    updates = [sent(site, n_steps=steps, n_samples=7) for site, steps in zip("abc", (1, 5, 9), strict=True)]
    assert mean_of(weighting="samples").coefficients(updates) == mean_of(weighting="uniform").coefficients(updates)


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
        ([sent("a", 0.5), sent("b", 0.1)], "similarity", []),
        ([sent("a", 0.5), sent("c"), sent("b")], "samples", [["b", "c"]]),
        ([sent("a", 0.5), sent("b"), sent("c", 0.5, n_samples=0)], "uniform", [["b"], ["c"]]),
        ([sent("a", 0.5), sent("idle", n_steps=0, n_samples=0)], "similarity", []),
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
