import itertools
import math

import numpy as np
import pytest
import torch
from monai.engines import SupervisedEvaluator
from monai.metrics import compute_roc_auc
from torch.nn.functional import one_hot

from fedmed.errors import DataError, FedMedError
from fedmed.training import auroc
from fedmed.training.auroc import MacroAuroc, accuracy_interval, class_aurocs, macro_auroc, macro_auroc_interval

from .conftest import expected_of, shown

CLASSES = ["normal", "bacteria", "virus"]


def drawn(n, classes=3, seed=0, steps=None):
    """Probabilities that know something of the labels; ``steps`` rounds them, which makes ties."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    logits = rng.normal(size=(n, classes)) + 0.8 * np.eye(classes)[labels]
    values = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return (values if steps is None else np.round(values * steps) / steps), labels


def by_pairs(values, positive):
    """The definition: every pair of a positive and a negative."""
    pairs = list(itertools.product(values[positive], values[~positive]))
    return np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs]) if pairs else np.nan


def macro_by_pairs(values, labels):
    result = [by_pairs(values[:, c], labels == c) for c in range(values.shape[1])]
    result = [value for value in result if not np.isnan(value)]
    return np.mean(result) if result else np.nan


@pytest.mark.parametrize("n", [2, 3, 7, 40])
@pytest.mark.parametrize("steps", [None, 4])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_count_over_all_pairs(n, steps, seed):
    values, labels = drawn(n, seed=seed, steps=steps)
    expected = [by_pairs(values[:, c], labels == c) for c in range(3)]
    assert class_aurocs(values, labels) == pytest.approx(expected, nan_ok=True, abs=1e-12)
    assert macro_auroc(values, labels) == pytest.approx(macro_by_pairs(values, labels), nan_ok=True, abs=1e-12)


def test_equals_monai_s():
    values, labels = drawn(60, steps=10)
    truth = one_hot(torch.from_numpy(labels))
    assert macro_auroc(values, labels) == pytest.approx(compute_roc_auc(torch.from_numpy(values), truth), abs=1e-12)


def test_extremes():
    labels = np.array([0, 0, 1, 1])
    right = np.eye(2)[labels]
    assert macro_auroc(right, labels) == 1
    assert macro_auroc(1 - right, labels) == 0
    assert macro_auroc(np.full((4, 2), 0.5), labels) == 0.5
    assert np.isnan(macro_auroc(right, np.zeros(4, int)))
    assert np.isnan(macro_auroc(right[:1], labels[:1]))


def test_weights_are_repeated_cases():
    values, labels = drawn(12, steps=5)
    weights = np.random.default_rng(1).integers(0, 3, size=(20, 12))
    for row, result in zip(weights, class_aurocs(values, labels, weights), strict=True):
        again, truth = np.repeat(values, row, axis=0), np.repeat(labels, row)
        expected = [by_pairs(again[:, c], truth == c) for c in range(3)]
        assert result == pytest.approx(expected, nan_ok=True, abs=1e-12)


@pytest.mark.parametrize("chunk", [auroc.CHUNK, 50])  # 50: one or two resamples at a time
def test_interval_equals_a_slow_bootstrap(monkeypatch, chunk):
    values, labels = drawn(25)
    labels[:24][labels[:24] == 2] = 1
    labels[24] = 2  # one case: a third of the resamples have none
    monkeypatch.setattr(auroc, "CHUNK", chunk)
    rng = np.random.default_rng(7)
    draws = [rng.integers(25, size=25) for _ in range(200)]
    means = [macro_by_pairs(values[draw], labels[draw]) for draw in draws]
    expected = np.percentile(means, [2.5, 97.5])
    assert macro_auroc_interval(values, labels, resamples=200, seed=7) == pytest.approx(expected, abs=1e-12)


def test_resamples_of_one_class_are_left_out():
    values, labels = np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]]), np.array([0, 1, 1])
    low, high = macro_auroc_interval(values, labels)
    assert low <= high and np.isfinite([low, high]).all()
    assert all(np.isnan(macro_auroc_interval(values, np.ones(3, int))))


def test_interval_covers_the_truth_about_as_often_as_it_says():
    def sample(n, rng):
        labels = rng.integers(2, size=n)
        score = rng.normal(size=n) + labels
        return np.stack([-score, score], 1), labels

    truth = 0.7602499389  # P(N(1, 2) > 0) = Phi(1 / sqrt(2))
    hits = 0
    for seed in range(100):
        low, high = macro_auroc_interval(*sample(80, np.random.default_rng(seed)), resamples=300)
        hits += low <= truth <= high
    assert 88 <= hits <= 100


def test_seed_decides():
    values, labels = drawn(30)
    first = macro_auroc_interval(values, labels, seed=1)
    assert first == macro_auroc_interval(values, labels, seed=1) != macro_auroc_interval(values, labels, seed=2)


@pytest.mark.parametrize(("right", "cases"), [(0, 1), (1, 1), (7, 10), (1900, 1943)])
def test_wilson(right, cases):
    z, share = 1.959963984540054, right / cases
    centre = (share + z**2 / (2 * cases)) / (1 + z**2 / cases)
    half = z / (1 + z**2 / cases) * np.sqrt(share * (1 - share) / cases + z**2 / (4 * cases**2))
    assert accuracy_interval(right, cases) == pytest.approx((centre - half, centre + half), abs=1e-9)


def test_shapes_that_do_not_fit():
    with pytest.raises(FedMedError, match=r"probabilities \(3,\) and labels \(3,\); use \(n, C\) and \(n,\)"):
        class_aurocs(np.zeros(3), np.zeros(3, int))


def scored(network, batches, decollate=True, **changes):
    metric = {"val_auroc": MacroAuroc(CLASSES, **changes)}
    evaluator = SupervisedEvaluator("cpu", batches, network, key_val_metric=metric, decollate=decollate)
    evaluator.run()
    return evaluator.state


@pytest.mark.parametrize("decollate", [True, False])
def test_key_metric(classifier, pictures, decollate):
    values, labels = expected_of(classifier, pictures)
    state = scored(classifier, pictures, decollate)
    assert state.metrics["val_auroc"] == state.best_metric == pytest.approx(macro_auroc(values, labels))


def test_key_metric_without_an_absent_class(given):
    logits, labels = [[3, 0, 1], [1, 0, 0], [1, 2, 0], [2, 1, 0]], [0, 0, 1, 1]
    values = torch.softmax(torch.tensor(logits, dtype=torch.float64), 1)
    assert scored(given, shown(logits, labels)).metrics["val_auroc"] == macro_auroc(values, np.array(labels))


def test_certain_cases_keep_their_order(given):
    """In float32 both would have the probability 1."""
    logits = [[20, 0, 0], [30, 0, 0]]
    assert scored(given, shown(logits, [1, 0])).metrics["val_auroc"] == 1


def test_key_metric_needs_two_classes(given):
    batches = shown([[1, 0, 0], [0, 1, 0]], [1, 1])
    with pytest.raises(DataError, match="val_auroc: the 2 cases are all of the class 'bacteria'"):
        scored(given, batches)
    assert math.isnan(scored(given, batches, required=False).metrics["val_auroc"])
