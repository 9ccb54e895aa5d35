"""Confusions of classes: scores worked out by hand, and sums that need no prediction."""

import numpy as np
import pytest

from fedmed.errors import FedMedError
from fedmed.training.label_counts import Confusion

PHASES = ["preparation", "clipping", "cleaning"]


def test_scores_worked_out_by_hand():
    confusion = Confusion(np.array([[8, 2, 0], [1, 15, 4], [0, 3, 7]]))
    assert confusion.counts.f1().tolist() == pytest.approx([0.8421053, 0.75, 0.6666667], abs=1e-6)
    scores = confusion.scores()
    assert scores["f1"] == pytest.approx(0.7529240, abs=1e-6) and scores["accuracy"] == 30 / 40
    assert scores["precision"] == pytest.approx((8 / 9 + 15 / 20 + 7 / 11) / 3)
    assert scores["recall"] == pytest.approx((8 / 10 + 15 / 20 + 7 / 10) / 3)


def test_means_are_over_the_phases_in_truth_or_prediction():
    """The first is there and never called, the second called and never there, the last neither."""
    scores = Confusion.of([0, 0, 2], [1, 1, 2], 4).scores()
    assert scores == pytest.approx({"f1": 1 / 3, "accuracy": 1 / 3, "precision": 1 / 3, "recall": 1 / 3})
    assert all(np.isnan(value) for value in Confusion.none(3).scores().values())


def test_tables_of_parts_add_up_to_that_of_the_whole():
    rng = np.random.default_rng(0)
    truth, called = rng.integers(0, 3, 60), rng.integers(0, 3, 60)
    total = Confusion.none(3)
    for part in np.array_split(np.arange(60), 4):
        total += Confusion.of(truth[part], called[part], 3)
    expected = [[int(((truth == i) & (called == j)).sum()) for j in range(3)] for i in range(3)]
    assert total.table.tolist() == expected
    sent = total.numbers(PHASES)
    assert sent["frames_preparation>cleaning"] == expected[0][2] and len(sent) == 9
    read = Confusion.from_numbers(sent, PHASES)
    assert read is not None and np.array_equal(read.table, total.table)
    assert Confusion.from_numbers({**sent, "frames_clipping>clipping": None}, PHASES) is None
    assert Confusion.from_numbers({}, []) is None


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(FedMedError, match=r"use \(n,\) for both"):
        Confusion.of([0, 1], [0], 2)
    with pytest.raises(FedMedError, match="not one of 0 … 1"):
        Confusion.of([0, 2], [0, 1], 2)
