"""A collapse of pseudo-labels is told once, and only then."""

import json
import re

import pytest

from fedmed.federation.guard import CollapseGuard
from fedmed.federation.loop import run_job
from fedmed.federation.messages import Update
from fedmed.reports.page import page
from fedmed.reports.run import read_run


def told(fractions, site="u"):
    """Rounds (counted from 0) in which a site with these foreground fractions is warned of."""
    guard = CollapseGuard()
    updates = [Update(site, r, {}, 4, 10, {"train_foreground_fraction": f}) for r, f in enumerate(fractions)]
    return [(update.round, found.message) for update in updates if (found := guard.check(update))]


@pytest.mark.parametrize(
    "healthy",
    [
        [0.020, 0.015, 0.018, 0.017, 0.012, 0.011, 0.015, 0.014],  # the demo after its warm start
        [0.46, 0.24, 0.073, 0.02, 0.01, 0.008],  # from an untrained network
        [1.0, 0.5, 0.03, 0.02, 0.02],  # from one that calls everything foreground at first
        [0.0, 0.0, 0.004, 0.02, 0.04],  # from one that calls nothing foreground at first
        [0.062, 0.081, 0.089, 0.060, 0.059],  # large lesions
        [3e-4, 1e-5, 0.0, 2e-4, 0.0, 0.0],  # a control population, rightly without findings
        [0.0, 0.0, 0.0],
        [2e-4, 1e-4, 0.0, 0.01, 1e-4],  # a control population with a few mistakes in one round
    ],
)
def test_learning_and_controls_are_no_collapse(healthy):
    assert told(healthy) == []


@pytest.mark.parametrize(
    ("fractions", "round", "words"),
    [
        ([0.02, 0.02, 0.02, 0.07, 0.25, 0.8, 1.0], 4, "25 % of voxels.*2 % in the site's first rounds.*spreading"),
        ([0.5, 0.7, 0.93, 1.0], 2, "93 % of voxels.*spreading"),
        ([0.02, 0.02, 0.02, 0.005, 2e-4, 0.0], 4, "0.02 % of voxels.*vanished"),
        ([0.02, 0.0, 0.0], 1, "0 % of voxels.*vanished.*right only where nobody has the disease"),
        ([1e-4, 0.0, 0.0, 0.2], 3, "20 % of voxels.*spreading"),  # a control population that is suddenly ill
    ],
)
def test_a_collapse_is_told_once_with_numbers_and_advice(fractions, round, words):
    found = told(fractions)
    assert [r for r, _ in found] == [round]
    assert re.search(words, found[0][1]), found[0][1]
    for advice in ("unsupervised_learning_rate", "user weight", "confidence", "two_sided"):
        assert advice in found[0][1]


def test_a_second_collapse_is_told_again_and_sites_are_apart():
    assert [r for r, _ in told([0.02, 0.02, 0.02, 0.5, 0.02, 0.5, 0.0])] == [3, 5, 6]
    guard = CollapseGuard()
    assert guard.check(Update("a", 0, {}, 1, 1, {"train_foreground_fraction": 0.01})) is None
    assert guard.check(Update("b", 0, {}, 1, 1, {"train_foreground_fraction": 0.99})) is None
    assert guard.check(Update("labelled", 1, {}, 1, 1, {"train_loss": 0.5})) is None
    assert guard.check(Update("a", 1, {}, 1, 1, {"train_foreground_fraction": 0.99})).site == "a"


def test_a_federation_that_runs_away_is_warned_of_and_goes_on(tiny_job, lively, unscored, tmp_path, caplog):
    """A learning rate far too high at the unlabelled site: its own confident voxels are all it ever sees."""
    lively["unsupervised"]["unsupervised_learning_rate"] = 0.05
    sites = {"ct_north": "supervised", "ct_east": "unsupervised"}
    job = tiny_job(sites=sites, rounds=2, steps=8, overrides=lively)
    run_job(job, tmp_path / "ws")
    fedmed = tmp_path / "ws/server/simulate_job/fedmed"
    rounds = [json.loads(line) for line in (fedmed / "rounds.jsonl").read_text().splitlines()]
    found = [(r["round"], w["site"]) for r in rounds for w in r["warnings"]]
    assert found and {site for _, site in found} == {"ct_east"} and all(r["aggregated"] for r in rounds)
    assert "site 'ct_east': " in caplog.text and "spreading" in caplog.text
    assert (fedmed / "result.json").is_file()
    assert f"Warning: ct_east, round {found[0][0] + 1}." in page(read_run(tmp_path / "ws"))
