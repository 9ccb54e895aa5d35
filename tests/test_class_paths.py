"""What a job names by class path: nothing outside FedMed's rooms is imported unless this machine allows it."""

import sys

import pytest

from fedmed.aggregation.reported import ReportedWeighting
from fedmed.aggregation.weighted_mean import WeightedMean
from fedmed.class_paths import class_path, load_class
from fedmed.errors import JobError
from fedmed.jobs.rule_spec import RULE_ROOMS, load_rule
from fedmed.settings.server import ALLOWED, load_server

MEAN = "fedmed.aggregation.weighted_mean.WeightedMean"
OUTSIDE = """
import sys
sys.fedmed_was_here = True
class Rule: pass
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A module ``outside_of_fedmed`` that leaves a trace when it is imported."""
    (tmp_path / "outside_of_fedmed.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delattr(sys, "fedmed_was_here", raising=False)
    yield "outside_of_fedmed.Rule"
    sys.modules.pop("outside_of_fedmed", None)
    if hasattr(sys, "fedmed_was_here"):
        del sys.fedmed_was_here


def test_a_class_in_the_rooms():
    assert load_class(MEAN, RULE_ROOMS) is WeightedMean and class_path(WeightedMean()) == MEAN


@pytest.mark.parametrize("wrong", ["outside_of_fedmed.Rule", "outside_of_fedmed.sub.Rule", "os.system"])
def test_a_class_outside_is_refused_before_any_import(outside, wrong):
    with pytest.raises(JobError, match="a job may not name the class.*must list it in its own settings"):
        load_class(wrong, RULE_ROOMS, allowed=["outside_of_fedmed.Other"])
    assert "outside_of_fedmed" not in sys.modules and not hasattr(sys, "fedmed_was_here")


def test_this_machine_may_allow_it(outside, monkeypatch):
    assert load_server().allowed_classes == ()
    monkeypatch.setenv(ALLOWED, f"other.Thing, {outside},")
    assert load_server().allowed_classes == ("other.Thing", outside)
    assert load_class(outside, RULE_ROOMS, load_server().allowed_classes).__name__ == "Rule"
    with pytest.raises(JobError, match="outside_of_fedmed.Rule is not a rule of the server"):
        load_rule({"path": outside}, load_server().allowed_classes)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("fedmed.aggregation.weighted_mean.Nothing", "there is no class"),
        ("fedmed.aggregation.nothing.Rule", "there is no class"),
        ("fedmed.aggregation.weighted_mean.Tensor", "not a class that is defined there"),
        ("fedmed.aggregation.weighted_mean.partial", "not a class that is defined there"),
        ("fedmed.aggregation.weighted_mean.site_weights", "not a class that is defined there"),
        ("fedmed.aggregations.weighted_mean.WeightedMean", "may not name the class"),
        ("fedmed.aggregation", "may not name the class"),
        ("fedmed.aggregation.weighted_mean.WeightedMean.__init__", "is not a class path"),
        ("fedmed.aggregation..WeightedMean", "is not a class path"),
        ("WeightedMean", "is not a class path"),
        (3, "is not a class path"),
        (None, "is not a class path"),
    ],
)
def test_paths_that_name_no_class_of_the_rooms(path, message):
    with pytest.raises(JobError, match=message):
        load_class(path, RULE_ROOMS)


def test_arguments_that_describe_objects_are_built_first():
    weighting = {"path": "fedmed.aggregation.reported.ReportedWeighting", "args": {"name": "fim"}}
    rule = load_rule({"path": MEAN, "args": {"weighting": weighting, "middle": None, "user_weights": {"a": 2.0}}})
    assert isinstance(rule.weighting, ReportedWeighting) and rule.user_weights == {"a": 2.0}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"path": MEAN, "args": {"weights": {}}}, "the arguments of .*WeightedMean are wrong: .*'weights'"),
        ({"path": MEAN, "arguments": {}}, "describes no object"),
        ({"path": MEAN, "args": [1]}, "describes no object"),
        ({}, "describes no object"),
        (MEAN, "describes no object"),
        ({"path": MEAN, "args": {"buffers": "fedbn"}}, "'fedbn' is unknown"),
        ({"path": MEAN, "args": {"step": {"path": "subprocess.Popen"}}}, "may not name the class 'subprocess.Popen'"),
        ({"path": "fedmed.aggregation.weighted_mean.UniformWeighting"}, "is not a rule of the server"),
    ],
)
def test_descriptions_that_are_wrong(spec, message):
    with pytest.raises(JobError, match=message):
        load_rule(spec)
