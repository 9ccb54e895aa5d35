"""By what a bundle's models are compared."""

from pathlib import Path

import pytest

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.score import DICE, Score, parse_score
from fedmed.errors import BundleError

AUROC = {"name": "auroc", "label": "AUROC", "test": "auroc", "low": "auroc_low", "high": "auroc_high"}


def test_bundles_say_it_and_those_that_do_not_mean_dice():
    assert Bundle("covid_ct_segmentation").score == DICE == parse_score(None, Path("x"))
    assert Bundle("cxr_classification").score == Score(**AUROC)
    assert Bundle("covid_ct_segmentation").calibration is None
    assert Bundle("cxr_classification").calibration == "temperature"


def test_names_of_metrics_and_plain_facts():
    score = parse_score(AUROC, Path("x"))
    assert score.validation == "val_auroc" and score.tested == ["auroc", "auroc_low", "auroc_high"]
    assert score.facts() == AUROC and DICE.tested == ["dice_mean", "dice_std"]


@pytest.mark.parametrize(
    ("score", "metrics", "words"),
    [
        (DICE, {"dice_mean": 0.81234, "dice_std": 0.1, "n_cases": 3}, "Dice 0.8123 ± 0.1000"),
        (DICE, {"dice_mean": 0.5}, "Dice 0.5000"),
        (Score(**AUROC), {"auroc": 0.9, "auroc_low": 0.8, "auroc_high": 1.0}, "AUROC 0.9000 (0.8000 to 1.0000)"),
        (Score(**AUROC), {"n_cases": 2}, "no AUROC"),
    ],
)
def test_scores_in_words(score, metrics, words):
    assert score.text(metrics) == words


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("dice", "'score' needs name, label, test"),
        ({"name": "dice", "label": "Dice"}, "'score' needs name, label, test"),
        ({**AUROC, "unit": "%"}, "may have spread, low, high"),
        ({**AUROC, "label": 3}, "'score.label' is 3"),
    ],
)
def test_mistakes_name_file_and_key(values, message):
    with pytest.raises(BundleError, match=f"federation.yaml.*{message}"):
        parse_score(values, Path("federation.yaml"))
