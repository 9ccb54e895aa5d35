"""Names that a site gives its tensors and values do nothing to the server's log or records."""

import json
import logging

import pytest
import torch

from fedmed.aggregation.acceptance import check_update
from fedmed.errors import UpdateRefused
from fedmed.federation.open_round import OpenRound
from fedmed.flare.convert import KEY, FLModel, model_to_extras, model_to_update
from fedmed.messages.answers import Extras, Update

EVIL = "w\n2026-01-01 00:00:00,000 - server - INFO - round 3: all updates accepted\x1b[2J\u202e" + "x" * 5000
FORMAT = logging.Formatter("%(asctime)s - %(name)s - %(levelname)s - %(message)s")


@pytest.fixture
def lines(caplog):
    """The lines that the server's log has got."""
    caplog.set_level(logging.INFO)
    return lambda: [line for record in caplog.records for line in FORMAT.format(record).split("\n")]


def harmless(texts) -> bool:
    return all(text.isprintable() and len(text) < 1500 for text in texts)


@pytest.mark.parametrize("name", [EVIL, "w"])
def test_a_tensors_name_is_one_short_line_of_the_log_and_of_the_record(name, lines):
    update = Update(site="a", round=0, tensors={name: torch.zeros(2)}, n_steps=1, n_samples=1)
    with pytest.raises(UpdateRefused) as caught:
        check_update(update, {"v": torch.zeros(2)}, 0, set())
    current = OpenRound(0)
    current.refuse(caught.value)

    assert len(lines()) == 1
    assert harmless([*lines(), str(caught.value), *current.refused.values()])
    assert json.loads(json.dumps(current.refused)) == current.refused


def test_a_malformed_update_or_answer_is_told_on_one_line(lines):
    facts = {"round": EVIL, "n_steps": 1, "n_samples": 1, "extras": {EVIL: EVIL}}
    model = FLModel(params_type="DIFF", params={"w": 1}, meta={"client_name": "a", KEY: facts})
    with pytest.raises(UpdateRefused) as caught:
        model_to_update(model)
    model_to_extras(model)

    assert harmless([str(caught.value), *lines()])


def test_a_value_that_nobody_asked_for_is_told_on_one_line(exchange_of):
    exchange = exchange_of({"a": "supervised"}, names=("mean",))
    exchange.take({"a": Extras("a", 0, {"mean": 1.0, EVIL: 1.0})}, 0, ["a"])

    assert harmless(warning["message"] for warning in exchange.warnings())
