"""Scalars that leave while a site works: declared by the study, finite, at most so many, and in the ledger."""

import math

import pytest
import yaml

from fedmed.bundles.score import Score
from fedmed.methods.find_method import installed
from fedmed.privacy.limits import SiteLimits, read_ledger
from fedmed.privacy.live_scalars import MOST, LiveScalars, declared_tags
from fedmed.settings.site import parse_site
from fedmed.systems.covid_fssl.method import Consistency

SCORE = Score("dice", "Dice", "dice_mean")
TAGS = declared_tags(Consistency(), SCORE)


@pytest.fixture
def live(tmp_path):
    """Return a function: privacy settings -> the gate of a site's scalars."""

    def live(**privacy):
        (tmp_path / "data").mkdir(exist_ok=True)
        text = yaml.safe_dump({"data_root": str(tmp_path / "data"), "device": "cpu", "privacy": privacy})
        site = parse_site("site_a", yaml.safe_load(text), tmp_path / "site_a.yaml")
        return LiveScalars(SiteLimits(site, tmp_path / "job"), TAGS)

    return live


def test_a_study_declares_by_its_method_and_the_bundles_score():
    assert {"train/loss", "train/foreground_fraction", "train/confident_fraction", "validation/dice"} <= TAGS
    assert "train/agreed_fraction" not in TAGS and "validation/auroc" not in TAGS
    for kind in installed().values():
        declared = declared_tags(kind(), SCORE)
        assert all(f"train/{scalar.name.removeprefix('train_')}" in declared for scalar in kind().scalars())


def test_what_passes_is_in_the_ledger(live, tmp_path):
    gate = live()
    assert gate.passes("train/loss", 0.5, 1) and gate.passes("validation/dice", 0.75, 0)
    lines = read_ledger(tmp_path / "job" / "ledger.jsonl")
    assert [(line["answer"], line["metrics"], line["step"]) for line in lines] == [
        ("live", {"train_loss": 0.5}, 1),
        ("live", {"val_dice": 0.75}, 0),
    ]


@pytest.mark.parametrize(
    ("tag", "value", "step"),
    [
        *(("patients/Meier-4711", 0.5, 1), ("train/other", 0.5, 1), ("train_loss", 0.5, 1), ("Train/loss", 0.5, 1)),
        *(("train/loss/", 0.5, 1), ("", 0.5, 1), (None, 0.5, 1), (["train/loss"], 0.5, 1)),
        *(("train/loss", math.nan, 1), ("train/loss", math.inf, 1), ("train/loss", "/srv/patients", 1)),
        *(("train/loss", True, 1), ("train/loss", None, 1), ("train/loss", 0.5, "1"), ("train/loss", 0.5, 1.5)),
    ],
)
def test_anything_else_stays(live, tmp_path, tag, value, step):
    assert not live().passes(tag, value, step)
    assert not (tmp_path / "job" / "ledger.jsonl").exists()


def test_one_task_sends_so_many_of_a_name_and_no_more(live, tmp_path, caplog):
    gate = live()
    sent = [gate.passes("train/loss", 0.5, step) for step in range(MOST + 3)]
    assert sent == [True] * MOST + [False] * 3
    assert gate.passes("train/foreground_fraction", 0.5, 0), "each name has its own number"
    assert caplog.text.count("stays here") == 1
    gate.begin()
    assert gate.passes("train/loss", 0.5, 0), "another task"
    assert len(read_ledger(tmp_path / "job" / "ledger.jsonl")) == MOST + 2


def test_the_limits_of_the_site_come_on_top(live):
    gate = live(allowed_metrics=["train_loss"])
    assert gate.passes("train/loss", 0.5, 1) and not gate.passes("validation/dice", 0.5, 1)
