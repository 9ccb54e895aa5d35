import numpy as np
import pytest

from research.runner.judgement import judge
from research.runner.score_table import score_frame
from research.runner.yaml_models import build
from research.tables.fedmoco import node_weight, slows

SLOWS = build(slows, {"id": 7, "text": "t", "arms": ["good"], "value": "rsa"}, "claim")
WEIGHS = build(node_weight, {"id": 5, "text": "t", "arms": ["good"], "node": 1}, "claim")


def history(seed, weights, rsa=None):
    """Rounds of two nodes of 30 and 10 images."""
    rows = [{"site": f"n{k}", "unit": "all", "metric": "images", "value": v} for k, v in ((1, 30.0), (2, 10.0))]
    for metric, values in (("weight", weights), ("rsa", [] if rsa is None else rsa)):
        for place, line in enumerate(values):
            both = {"unit": f"{place}", "metric": metric}
            rows += [{**both, "site": f"n{k + 1}", "value": float(value)} for k, value in enumerate(line)]
    return score_frame(rows, arm="good", seed=seed, list="rounds", model="last")


@pytest.fixture
def verdict(image_evidence):
    return lambda claim, *rounds: judge([claim], image_evidence({"good": 1}, rounds=rounds))[0].verdict


@pytest.mark.parametrize(("weights", "expected"), [([[0.6, 0.4]] * 3, "✓"), ([[0.9, 0.1]] * 3, "✗")])
def test_the_weight_of_a_node_beside_its_share(verdict, weights, expected):
    assert verdict(WEIGHS, history(0, weights), history(1, weights)) == expected
    assert verdict(WEIGHS) == "not run"
    assert verdict(WEIGHS, history(0, [[0.6, 0.4]]), history(1, [[0.9, 0.1]])) == "n.s."


def test_learning_slows_when_r_rises_and_weights_flatten(verdict):
    weights, rsa = np.array([[0.9, 0.1], [0.7, 0.3], [0.5, 0.5]]), np.array([[0.1, 0.2], [0.5, 0.5], [0.9, 0.9]])
    assert verdict(SLOWS, history(0, weights, rsa)) == "✓"
    assert verdict(SLOWS, history(0, weights[::-1], rsa[::-1])) == "✗"
    assert verdict(SLOWS, history(0, weights, rsa), history(1, weights[::-1], rsa[::-1])) == "n.s."
    assert verdict(SLOWS, history(0, weights)) == verdict(SLOWS, history(0, weights, rsa[:2])) == "n.s."
