import numpy as np
import pytest

from fedmed.experiments.pretraining.scores import Result, Scores, Setting, Truth

SETTING = Setting("lungs", "internal", "linear", 1.0, "last")
LABELS = np.array([0, 1] * 30)


def probabilities(error, seed, n=60):
    """Of two classes, as good as ``error`` is small."""
    noise = np.random.default_rng(seed).normal(0, error, n)
    p = 1 / (1 + np.exp(-(LABELS[:n] * 2 - 1 + noise)))
    return np.stack([1 - p, p], 1)


@pytest.fixture
def truth():
    names = tuple(f"case_{i}" for i in range(60))
    return Truth(names, LABELS, np.array([f"p{i // 2}" for i in range(60)]), ("normal", "ill"))


@pytest.fixture
def make_scores(truth):
    """Scores of arms from {arm: error}, three seeds, in the settings given."""

    def make(errors, settings=(SETTING,), draws=("0",)):
        results = [
            Result(arm, seed, setting, draw, probabilities(error, 100 * seed + 7 * place + int(draw)))
            for place, (arm, error) in enumerate(errors.items())
            for seed in range(3)
            for setting in settings
            for draw in draws
        ]
        return Scores(results, {(s.task, s.test): truth for s in settings})

    return make
