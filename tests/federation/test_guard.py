"""A collapse of pseudo-labels or of contrastive features is told once, and only then."""

import json
import re

import pytest
import torch

from fedmed.federation.loop import run_job
from fedmed.federation.reported_numbers import CollapseGuard
from fedmed.messages.answers import Update
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from fedmed.systems.covid_fssl.method import Consistency
from fedmed.systems.fedmoco.loss import contrast_scalars
from fedmed.systems.fedmoco.method import FedMoCo
from fedmed.systems.fedmoco.server import ACCURACY, SIMILARITY, ZERO
from tests.federation.run_folder import result_of, rounds_of


def guards():
    """The guards of both methods that have one, with new memories."""
    return CollapseGuard({**Consistency().guards(), **FedMoCo().guards()})


def reported(fractions, site="u"):
    """Rounds (counted from 0) in which a site with these foreground fractions is warned of."""
    result = found_in(guards(), [{"train_foreground_fraction": f} for f in fractions], site)
    return [(round, finding.message) for round, finding in result]


def found_in(guard, metrics, site="u"):
    """(round, finding) of a site that reports these metrics round by round."""
    updates = [Update(site, round, {}, 4, 10, sent) for round, sent in enumerate(metrics)]
    return [(update.round, finding) for update in updates for finding in guard.check(update)]


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
    assert reported(healthy) == []


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
    result = reported(fractions)
    assert [r for r, _ in result] == [round]
    assert re.search(words, result[0][1]), result[0][1]
    for advice in ("unsupervised_learning_rate", "user weight", "confidence", "two_sided"):
        assert advice in result[0][1]


def test_a_second_collapse_is_told_again_and_sites_are_apart():
    assert [r for r, _ in reported([0.02, 0.02, 0.02, 0.5, 0.02, 0.5, 0.0])] == [3, 5, 6]
    guard = guards()
    assert guard.check(Update("a", 0, {}, 1, 1, {"train_foreground_fraction": 0.01})) == []
    assert guard.check(Update("b", 0, {}, 1, 1, {"train_foreground_fraction": 0.99})) == []
    assert guard.check(Update("labelled", 1, {}, 1, 1, {"train_loss": 0.5})) == []
    (result,) = guard.check(Update("a", 1, {}, 1, 1, {"train_foreground_fraction": 0.99}))
    assert (result.site, result.what) == ("a", "pseudo_labels_spreading")
    assert (result.value, result.reference) == (0.99, 0.01)


# Contrastive pre-training


def contrast(*pairs, **more):
    """Metrics of rounds with these positive similarities and contrastive accuracies."""
    return [{"train_positive_similarity": s, "train_contrastive_accuracy": a, **more} for s, a in pairs]


# The demo with a queue of 256 keys and 7 steps a round; it ended at a loss of log(257), where it had begun.
COLLAPSE = [
    (0.83, 0.0045), (0.79, 0.022), (0.94, 0.17), (0.95, 0.15), (0.99, 0.16), (0.9975, 0.147), (0.997, 0.147),
    (0.999, 0.156), (0.9994, 0.094), (0.999, 0.067), (1.0, 0.0),
]  # fmt: skip
# The same with synthetic negatives: not all alike, but hardly any image is found.
SLOW_COLLAPSE = [
    (0.8201, 0.027), (0.8209, 0.022), (0.8882, 0.156), (0.9724, 0.156), (0.9921, 0.165), (0.9936, 0.103),
    (0.9948, 0.022), (0.9958, 0.013), (0.9966, 0.018), (0.9970, 0.022), (0.9977, 0.036), (0.9984, 0.036),
]  # fmt: skip


@pytest.mark.parametrize(
    ("pairs", "round"),
    [
        (COLLAPSE, 10),
        (SLOW_COLLAPSE, 6),
        ([*COLLAPSE, (1.0, 0.0), (0.985, 0.04), (0.99, 0.05), (1.0, 0.0)], 10),  # up and down is not a recovery
        ([(0.9, 0.3), (0.999, 0.01)], 1),
        ([(0.999, 0.001)] * 6, 3),  # has never learned anything
    ],
)
def test_features_that_become_the_same_are_told_once_with_numbers_and_advice(pairs, round):
    ((at, finding),) = found_in(guards(), contrast(*pairs))
    assert (at, finding.what) == (round, "features_alike")
    assert (finding.value, finding.reference) == (pairs[at][1], max(accuracy for _, accuracy in pairs[:at]))
    for advice in ("queue_size", "key_policy refill", "local epochs", "learning_rate", "key_momentum"):
        assert advice in finding.message


@pytest.mark.parametrize(
    "healthy",
    [
        [(0.9 - 0.1 * k / 29, 0.02 + 0.148 * k / 29) for k in range(30)],  # ends at (0.80, 0.168)
        [(0.8143, 0.0035), (0.61, 0.01), (0.56, 0.02), (0.6583, 0.04)],
        [(0.763, 0.027), (0.792, 0.152), (0.99, 0.133), (0.996, 0.145), (0.996, 0.059), (0.995, 0.055), (0.94, 0.02)],
        [(0.999, 0.001), (0.995, 0.0), (0.99, 0.002), (0.95, 0.01), (0.9, 0.2)],  # an untrained network
        [(0.999, 0.9)] * 4,  # images that are easy to tell apart
        [(0.8, 0.3), (0.8, 0.001)],  # a bad round, but views differ
    ],
)
def test_learning_by_contrast_is_no_collapse(healthy):
    assert found_in(guards(), contrast(*healthy, train_zero_rows=0.1)) == []


def test_a_contrastive_collapse_after_a_recovery_is_told_again():
    pairs = [*COLLAPSE, (0.9, 0.2), (0.999, 0.01)]
    assert [round for round, _ in found_in(guards(), contrast(*pairs))] == [10, 12]


def test_a_projection_that_dies_is_told_from_the_first_round_on():
    metrics = contrast((0.4, 0.3), train_zero_rows=0.5) + contrast((0.2, 0.1), (0.0, 0.0), train_zero_rows=0.63)
    ((round, finding),) = found_in(guards(), metrics)
    assert (round, finding.what, finding.value, finding.reference) == (1, "features_zero", 0.63, 0.5)
    assert "63 % of its images have no feature above 0" in finding.message and "max_grad_norm" in finding.message
    assert [round for round, _ in found_in(guards(), metrics[1:])] == [0]


@pytest.mark.parametrize("at", range(len(COLLAPSE) + 1))
def test_a_guard_goes_on_from_its_state(at):
    """A resumed run warns of the same rounds; what is kept is plain."""
    metrics = [
        {**sent, "train_foreground_fraction": f}
        for sent, f in zip(contrast(*COLLAPSE), [0.02, 0.02, 0.02, 0.5, *[1.0] * 7], strict=True)
    ]
    first, second = guards(), guards()
    result = found_in(first, metrics[:at])
    second.restore(json.loads(json.dumps(first.state())))
    result += [(at + round, finding) for round, finding in found_in(second, metrics[at:])]
    assert [(round, one.what) for round, one in result] == [(3, "pseudo_labels_spreading"), (10, "features_alike")]
    second.restore({})
    assert second.state() == guards().state()


def test_a_site_that_does_not_say_how_alike_its_features_are_is_not_judged():
    assert found_in(guards(), [{"train_contrastive_accuracy": a} for _, a in COLLAPSE]) == []


def test_the_guard_reads_what_the_engine_reports():
    scalars = contrast_scalars(torch.eye(2), torch.ones(2), torch.zeros(2, 3))
    assert {f"train_{name}" for name in scalars} == {SIMILARITY, ACCURACY, ZERO}


@pytest.mark.usefixtures("unscored", "no_charts")
def test_a_federation_that_runs_away_is_warned_of_and_goes_on(tiny_job, lively, tmp_path, caplog):
    """A learning rate far too high at the unlabelled site: its own confident voxels are all it ever sees."""
    overrides = {**lively, "unsupervised": {**lively["unsupervised"], "unsupervised_learning_rate": 0.05}}
    sites = {"ct_north": "supervised", "ct_east": "unsupervised"}
    job = tiny_job(sites=sites, rounds=2, steps=8, overrides=overrides)
    run_job(job, tmp_path / "ws")
    rounds = rounds_of(tmp_path / "ws")
    result = [(r["round"], w["site"]) for r in rounds for w in r["warnings"]]
    assert result and {site for _, site in result} == {"ct_east"} and all(r["aggregated"] for r in rounds)
    assert "site 'ct_east': " in caplog.text and "spreading" in caplog.text
    assert result_of(tmp_path / "ws")
    assert f"Warning: ct_east, round {result[0][0] + 1}." in page(read_run(tmp_path / "ws"))
