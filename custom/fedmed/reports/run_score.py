"""The score of a run, as its ``run.json`` tells."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fedmed.bundles.score import DICE, Score

NEUTRAL = "score"  # what a person reads as long as a run has not told


def score_of(facts: Mapping[str, Any]) -> Score:
    """The score that a ``run.json`` names; Dice for runs of the time when there was no other."""
    told = facts.get("score")
    if not isinstance(told, Mapping) or not told.get("name"):
        return DICE
    name = str(told["name"])
    known = {field.name: str(told[field.name]) for field in fields(Score) if told.get(field.name)}
    return Score(**{"label": name, "test": name, **known})
