"""Comparisons and verdicts: clear differences are found either way round, others are not."""

import numpy as np
import pytest

from fedmed.errors import DataError, JobError
from fedmed.experiments.pretraining.claims import read_claims
from fedmed.experiments.pretraining.comparison import compare, two_sided
from fedmed.experiments.pretraining.dynamics import History
from fedmed.experiments.pretraining.report import claims_markdown
from fedmed.experiments.pretraining.scores import Result, Scores
from fedmed.experiments.pretraining.verdicts import judge

from .conftest import SETTING, probabilities


def claim(better, worse, **more):
    line = {"better": better, "worse": worse, "protocol": "linear", "fractions": [1], "metrics": ["auroc"]}
    return {"id": f"{better}{worse}", "text": "t", "holds": [line], **more}


def history(weights, rsa=None):
    weights = np.array(weights, float)
    return History(("n1", "n2"), np.array([30.0, 10.0]), weights, None if rsa is None else np.array(rsa, float))


def verdicts(claims, scores, histories=None):
    return [one.verdict for one in judge(read_claims(claims, ["good", "bad", "same"]), scores, histories or {})]


def test_a_clear_difference_holds_or_is_contrary_and_a_small_one_is_open(make_scores):
    scores = make_scores({"good": 0.5, "bad": 4.0, "same": 0.5})
    claims = [claim("good", "bad"), claim("bad", "good"), claim("good", "same"), claim("good", "bad", report=True)]
    claims[3]["id"] = "r"
    assert verdicts(claims, scores) == ["✓", "✗", "n.s.", "reported"]
    judged = judge(read_claims(claims, ["good", "bad", "same"]), scores, {})
    text = claims_markdown("T", judged)
    assert "| goodbad | t | ✓ |" in text and "3/3" in text and "| linear, 100 % | auroc |" in text


def test_the_interval_holds_the_difference_and_the_means_are_those_of_the_seeds(make_scores):
    found = compare(make_scores({"good": 0.5, "bad": 4.0}, draws=("0", "1")), "good", "bad", SETTING, "accuracy")
    assert found.low <= found.difference <= found.high and found.p < 0.01
    assert np.mean(found.seed_differences) == pytest.approx(found.difference)


def test_an_arm_against_itself_differs_in_nothing(truth):
    results = [Result(arm, 0, SETTING, "0", probabilities(2, 1)) for arm in ("good", "same")]
    found = compare(Scores(results, {("lungs", "internal"): truth}), "good", "same", SETTING, "auroc")
    assert (found.difference, found.p, found.seeds_agreeing) == (0, 1, 0)


def test_a_part_of_a_claim_is_not_judged(make_scores):
    assert verdicts([claim("good", "bad")], make_scores({"good": 1})) == ["not run"]


def test_different_seeds_are_no_pairs(truth):
    results = [Result(arm, seed, SETTING, "0", probabilities(1, 1)) for arm, seed in (("good", 0), ("bad", 1))]
    with pytest.raises(DataError, match="run both with the same"):
        verdicts([claim("good", "bad")], Scores(results, {("lungs", "internal"): truth}))


def test_p_is_never_zero_and_counts_ties_on_both_sides():
    assert two_sided(np.ones(99)) == pytest.approx(0.02)
    assert two_sided(np.zeros(99)) == 1


@pytest.mark.parametrize(("weights", "verdict"), [([[0.6, 0.4]] * 3, "✓"), ([[0.9, 0.1]] * 3, "✗")])
def test_the_weight_of_a_node_beside_its_share(make_scores, weights, verdict):
    claims = [{"id": 5, "text": "t", "weights": {"arms": ["good"], "node": 1}}]
    histories = {"good": {0: history(weights), 1: history(weights)}}
    assert verdicts(claims, make_scores({"good": 1}), histories) == [verdict]
    assert verdicts(claims, make_scores({"good": 1})) == ["not run"]
    mixed = {"good": {0: history([[0.6, 0.4]]), 1: history([[0.9, 0.1]])}}
    assert verdicts(claims, make_scores({"good": 1}), mixed) == ["n.s."]


def test_learning_slows_when_r_rises_and_weights_flatten(make_scores):
    claims = [{"id": 7, "text": "t", "slows": {"arms": ["good"]}}]
    slow = history([[0.9, 0.1], [0.7, 0.3], [0.5, 0.5]], [[0.1, 0.2], [0.5, 0.5], [0.9, 0.9]])
    fast = history(slow.weights[::-1], slow.rsa[::-1])
    scores = make_scores({"good": 1})
    assert verdicts(claims, scores, {"good": {0: slow}}) == ["✓"]
    assert verdicts(claims, scores, {"good": {0: fast}}) == ["✗"]
    assert verdicts(claims, scores, {"good": {0: slow, 1: fast}}) == ["n.s."]
    assert verdicts(claims, scores, {"good": {0: history(slow.weights)}}) == ["n.s."]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"id": 1, "text": "t"}, "one of holds"),
        ({"id": 1, "text": "t", "holds": []}, "at least one"),
        (claim("good", "ugly"), "'ugly' is no arm"),
        ({"id": 1, "text": "t", "holds": [{"better": "good"}]}, "is no comparison"),
        ({"id": 1, "text": "t", "weights": {"arms": ["good"], "node": 0}}, "node's place"),
    ],
)
def test_malformed_claims_are_named(content, words):
    with pytest.raises(JobError, match=words):
        read_claims([content], ["good", "bad"])


def test_an_unknown_metric_or_a_claim_twice_is_refused():
    wrong = claim("good", "bad")
    wrong["holds"][0]["metrics"] = ["dice"]
    with pytest.raises(JobError, match="use accuracy or auroc"):
        read_claims([wrong], ["good", "bad"])
    with pytest.raises(JobError, match="there twice"):
        read_claims([claim("good", "bad")] * 2, ["good", "bad"])
