"""Metrics of many weightings, against the obvious definition on one of them."""

import numpy as np
import pytest

from fedmed.errors import DataError
from research.runner.score_kinds import Accuracy, AurocOfClasses, UnitMean

KINDS = {"accuracy": Accuracy(label="accuracy"), "auroc": AurocOfClasses(label="AUROC")}


def score(name, labels, p, weights=None):
    values = {f"p_{c}": p[:, c] for c in range(p.shape[1])}
    return KINDS[name].weighted(values, labels.astype(str), np.ones((1, len(labels))) if weights is None else weights)


def reference(labels, p, counts):
    """Every pair of a positive and a negative, each case as often as it counts."""
    rows = np.repeat(np.arange(len(labels)), counts)
    y, q = labels[rows], p[rows]
    of_class = []
    for c in range(p.shape[1]):
        positive, negative = q[y == c, c], q[y != c, c]
        if len(positive) and len(negative):
            pairs = positive[:, None] - negative[None]
            of_class.append(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    return (q.argmax(1) == y).mean(), np.mean(of_class) if of_class else np.nan


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("ties", [False, True])
def test_every_weighting_is_scored_as_if_it_were_the_sample(classes, ties):
    generator = np.random.default_rng(classes)
    labels, p = generator.integers(0, classes, 40), generator.random((40, classes))
    p = np.round(p, 1) if ties else p
    counts = np.vstack([np.ones(40, int), generator.integers(0, 3, (20, 40))])
    counts[1, labels == 0] = 0  # none of a class
    wanted = np.array([reference(labels, p, row) for row in counts])
    np.testing.assert_allclose(score("accuracy", labels, p, counts.astype(float)), wanted[:, 0])
    np.testing.assert_allclose(score("auroc", labels, p, counts.astype(float)), wanted[:, 1])


def test_one_class_alone_has_no_auroc():
    assert np.isnan(score("auroc", np.zeros(4, int), np.full((4, 2), 0.5)))[0]


@pytest.mark.parametrize(
    ("labels", "p", "words"), [([0, 2], [[1, 0]] * 2, "do not fit the classes"), ([0, 1], [[np.nan, 0]] * 2, "diverge")]
)
def test_what_does_not_fit_is_refused(labels, p, words):
    with pytest.raises(DataError, match=words):
        score("auroc", np.array(labels), np.array(p, float))


def test_a_mean_over_units_is_of_its_own_metric():
    dice = UnitMean(label="Dice", metric="dice")
    values, weights = {"dice": np.array([0.2, 0.6]), "hd95": np.array([9.0, 9.0])}, np.array([[1.0, 1.0], [2.0, 0.0]])
    assert dice.weighted(values, np.array(["", ""]), weights) == pytest.approx([0.4, 0.2])
    with pytest.raises(DataError, match="no metric 'dice'; they have hd95"):
        dice.weighted({"hd95": values["hd95"]}, np.array(["", ""]), weights)
