"""What a rule leaves is kept with its model, and taken up by the same rule for the same network only."""

from dataclasses import replace

import pytest
import torch

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import StateError
from fedmed.recovery.rule_state import RuleState, network

MODEL = {"w": torch.zeros(2, 3), "n": torch.tensor(1)}


@pytest.fixture
def kept():
    return RuleState(
        "made.Up", network(MODEL), {"v": {"w": torch.ones(2)}, "t": 3}, {"unsupervised": MODEL}, {"a": {"x": 1.5}}
    )


def test_it_survives_the_disk(kept, tmp_path):
    save_tensors(tmp_path / "rule.pt", kept.content())
    back = RuleState.from_content(load_tensors(tmp_path / "rule.pt"), "rule.pt")
    assert back.state["t"] == 3 and torch.equal(back.state["v"]["w"], torch.ones(2)) and back.values == kept.values
    assert torch.equal(back.for_roles["unsupervised"]["w"], MODEL["w"])
    back.check("made.Up", MODEL)


@pytest.mark.parametrize(
    ("rule", "model", "message"),
    [
        ("other.Rule", MODEL, "is of the rule made.Up, this job's rule is other.Rule; continue with the job"),
        (
            "made.Up",
            {**MODEL, "w": torch.zeros(2)},
            r"another network: tensor 'w' is float32 \(2, 3\) there and float32 \(2,\)",
        ),
        ("made.Up", {**MODEL, "w": torch.zeros(2, 3).double()}, "tensor 'w' is float32 .* there and float64"),
        ("made.Up", {"w": MODEL["w"]}, "tensor 'n' is int64 .* there and missing here"),
        ("made.Up", {**MODEL, "x": torch.zeros(1)}, "tensor 'x' is missing there and float32"),
    ],
)
def test_another_rule_or_network_is_one_clear_error(kept, rule, model, message):
    with pytest.raises(StateError, match=message):
        kept.check(rule, model)


@pytest.mark.parametrize("change", [{"rule": 3}, {"state": None}, {"network": []}, {"values": 1}])
def test_what_no_server_wrote_is_refused(kept, change):
    with pytest.raises(StateError, match="rule.pt does not hold the state of a rule"):
        RuleState.from_content(replace(kept, **change).content(), "rule.pt")
    with pytest.raises(StateError, match="rule.pt does not hold the state of a rule"):
        RuleState.from_content({"rule": "made.Up"}, "rule.pt")
