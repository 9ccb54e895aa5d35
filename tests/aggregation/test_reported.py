"""Weighting by a positive number that sites report: FedAS's Fisher trace, for example."""

import itertools
import math

import pytest
import torch

from fedmed.aggregation.reported import ReportedWeighting
from fedmed.aggregation.weighted_mean import WeightedMean
from fedmed.errors import JobError, UpdateRefused
from fedmed.messages.answers import Update


def sent(site, fim=None, n_steps=4, n_samples=10, change=0.0):
    extras = {} if fim is None else {"fim": fim}
    return Update(site, 0, {"w": torch.tensor([change])}, n_steps, n_samples, {}, extras)


def test_fedas_coefficients():
    """Fisher traces (2, 1, 5): coefficients (1/4, 1/8, 5/8)."""
    updates = [sent("a", 2, change=1.0), sent("b", 1.0, change=2.0), sent("c", 5, change=4.0)]
    for order in itertools.permutations(updates):
        outcome = WeightedMean(ReportedWeighting("fim")).aggregate({"w": torch.zeros(1)}, list(order))
        assert outcome.coefficients == {"a": 0.25, "b": 0.125, "c": 0.625}
        assert outcome.tensors["w"].item() == 0.25 + 0.25 + 2.5 and outcome.warnings == []


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, 1.1e12, 10**400, "2", True, None, torch.tensor(2.0)])
def test_what_is_not_a_positive_number_refuses_the_update(value):
    update = sent("a", 1)
    update.extras["fim"] = value
    rule = WeightedMean(ReportedWeighting("fim"))
    with pytest.raises(UpdateRefused, match="'a' refused: its 'fim' is .*; it must be a number above 0"):
        rule.check_update(update)
    rule.check_update(sent("a", 1e-300))
    rule.check_update(sent("a"))


def test_a_bound_of_the_job_holds():
    with pytest.raises(UpdateRefused, match="its 'fim' is 11; it must be a number above 0, at most 10"):
        ReportedWeighting("fim", most=10).check_update(sent("a", 11))
    ReportedWeighting("fim", most=10).check_update(sent("a", 10))


def test_where_one_site_does_not_report_it_all_are_weighed_by_samples_and_that_is_said():
    updates = [sent("a", 5, n_samples=30), sent("b", n_samples=10), sent("idle", n_steps=0)]
    outcome = WeightedMean(ReportedWeighting("fim")).aggregate({"w": torch.zeros(1)}, updates)
    assert outcome.coefficients == {"a": 0.75, "b": 0.25, "idle": 0.0}
    ((sites, said),) = outcome.warnings
    assert sites == ["b"] and "'fim'" in said and "'samples'" in said


@pytest.mark.parametrize(
    "arguments", [{"name": ""}, {"name": 3}, {"name": "x", "most": 0}, {"name": "x", "most": 1e13}]
)
def test_arguments_that_cannot_be_meant(arguments):
    with pytest.raises(JobError, match="weighting 'reported'"):
        ReportedWeighting(**arguments)
