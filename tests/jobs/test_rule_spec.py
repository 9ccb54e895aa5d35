"""The rule that a job asks for, with its parts by their short names."""

import pytest

from fedmed.aggregation.reported import ReportedWeighting
from fedmed.errors import JobError
from fedmed.jobs.rule_spec import MEAN, WEIGHTINGS, load_rule, rule_spec
from fedmed.systems.fedmoco.method import SELF_ADAPTIVE


def test_without_arguments_it_is_the_mean_by_steps():
    spec = rule_spec({"path": MEAN})
    assert spec == {"path": MEAN, "args": {"weighting": {"path": WEIGHTINGS["iterations"], "args": {}}}}


@pytest.mark.parametrize("kind", [kind for kind in WEIGHTINGS if kind != "reported"])
def test_every_weighting_by_its_name(kind):
    assert load_rule(rule_spec({"path": MEAN, "args": {"weighting": kind}})).weighting.kind == kind


def test_a_number_that_sites_report():
    weighting = {"by": "reported", "name": "fim_trace", "most": 5}
    rule = load_rule(rule_spec({"path": MEAN, "args": {"weighting": weighting}}))
    assert type(rule.weighting) is ReportedWeighting and (rule.weighting.name, rule.weighting.most) == ("fim_trace", 5)


@pytest.mark.parametrize("by", ["reported", "fedmed.aggregation.reported.ReportedWeighting"])
def test_a_study_names_the_number_that_sites_report(job_of, by):
    weighting = {"by": by, "name": "fim"}
    sites = {"a": "supervised", "b": "supervised"}
    job = job_of(name="x", sites=sites, rounds=1, steps=1, rule={"args": {"weighting": weighting}})
    assert job.short_rule["args"]["weighting"] == weighting
    assert load_rule(job.rule).weighting.name == "fim"


def test_a_similarity_that_sites_report_under_another_name():
    weighting = {"by": SELF_ADAPTIVE, "name": "alike", "form": "softmax", "floor": 0.1}
    rule = load_rule(rule_spec({"path": MEAN, "args": {"weighting": weighting}}))
    assert (rule.weighting.kind, rule.weighting.name, rule.weighting.form) == ("similarity", "alike", "softmax")


def test_arguments_reach_the_rule():
    said = {"normalise": False, "user_weights": {"a": 0.5}, "clip_norm": 2.0}
    rule = load_rule(rule_spec({"path": MEAN, "args": {}}, said, buffers="local"))
    assert (rule.normalise, rule.user_weights, rule.clip_norm, rule.buffers) == (False, {"a": 0.5}, 2.0, "local")


def test_a_named_rule_comes_as_it_is():
    named = {"path": "somewhere.Rule", "args": {"beta": 0.9}}
    assert rule_spec(named, {}, "average") == named


@pytest.mark.parametrize("said", [{"normalise": False}, {"user_weights": {"a": 1.0}}, {"clip_norm": 1.0}])
def test_what_the_mean_alone_can_do_is_not_said_beside_another_rule(said):
    with pytest.raises(JobError, match=f"'{next(iter(said))}' belongs to the arguments of the rule that 'rule' names"):
        rule_spec({"path": "somewhere.Rule", "args": {}}, said)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"rule": "mode"}, "rule 'mode' is unknown; use mean, median, trimmed_mean"),
        ({"trim": 0.1}, "'trim' is for rule 'trimmed_mean'"),
        ({"weighting": {"by": "reported"}}, "the arguments of .*ReportedWeighting are wrong: .*'name'"),
        ({"weighting": {"name": "fim"}}, "'weighting' is None; use"),
        ({"weighting": ["samples"]}, "'weighting' is "),
        ({"weighting": {"by": "samples", "name": "x"}}, "the arguments of .*SampleWeighting are wrong"),
        ({"rule": object()}, "rule <object object.*> is unknown; .*or name a class"),
        ({"rule": {"path": MEAN}, "trim": 0.1}, "rule {'path': .*} is unknown"),
        ({"colour": 1}, "the arguments of .*WeightedMean are wrong: .*'colour'"),
    ],
)
def test_arguments_that_cannot_be_meant(args, message):
    with pytest.raises(JobError, match=message):
        load_rule(rule_spec({"path": MEAN, "args": args}))
