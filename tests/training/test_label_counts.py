"""Counts add up to what all frames together give; average precision against the definition."""

import numpy as np
import pytest

from fedmed.errors import FedMedError
from fedmed.training.label_counts import LabelCounts, average_precisions, macro

TOOLS = ["grasper", "clipper"]


def frames(seed, n=50):
    rng = np.random.default_rng(seed)
    return rng.random((n, 3)) < 0.4, rng.random((n, 3)).round(1)  # rounded: with ties


def test_counts_of_parts_add_up_to_those_of_the_whole():
    parts = [frames(seed) for seed in range(4)]
    whole = LabelCounts.of(*(np.concatenate([part[i] >= 0.5 for part in parts]) for i in (0, 1)))
    total = LabelCounts.none(3)
    for truth, values in parts:
        total += LabelCounts.of(truth, values >= 0.5)
    for name in ("tp", "fp", "fn"):
        assert np.array_equal(getattr(total, name), getattr(whole, name))
    assert np.array_equal(total.f1(), whole.f1())
    means = np.mean([LabelCounts.of(truth, values >= 0.5).f1() for truth, values in parts], axis=0)
    assert not np.allclose(means, whole.f1()), "the score of all is not the mean of the scores"


def test_both_policies_worked_out_by_hand():
    counts = LabelCounts(np.array([8, 0, 0, 0]), np.array([2, 0, 3, 0]), np.array([4, 0, 0, 5]))
    assert counts.precision().tolist() == pytest.approx([0.8, 0, 0, 0])
    assert counts.recall().tolist() == pytest.approx([2 / 3, 0, 0, 0])
    assert counts.f1().tolist() == pytest.approx([0.7272727, 0, 0, 0], abs=1e-6)
    assert np.isnan(counts.f1("skip")).tolist() == [False, True, False, False]
    assert np.isnan(counts.precision("skip")).tolist() == [False, True, False, True]
    assert np.isnan(counts.recall("skip")).tolist() == [False, True, True, False]
    assert macro(counts.f1()) == pytest.approx(0.7272727 / 4) and macro(counts.f1("skip")) == pytest.approx(
        0.7272727 / 3
    )
    with pytest.raises(FedMedError, match="absent is 'one'"):
        counts.recall("one")


def test_numbers_that_a_site_sends_are_read_again():
    counts = LabelCounts(np.array([1, 2]), np.array([3, 4]), np.array([5, 6]))
    sent = counts.numbers(TOOLS)
    assert sent == dict(tp_grasper=1, tp_clipper=2, fp_grasper=3, fp_clipper=4, fn_grasper=5, fn_clipper=6)
    read = LabelCounts.from_numbers(sent, TOOLS)
    assert read is not None and read.numbers(TOOLS) == sent
    assert LabelCounts.from_numbers({**sent, "fn_clipper": None}, TOOLS) is None
    assert LabelCounts.from_numbers({}, TOOLS) is None


def reference(truth, values):
    """Sum over thresholds, highest first, of the growth of the recall times the precision."""
    total, before, score = truth.sum(), 0.0, 0.0
    for threshold in sorted(set(values), reverse=True):
        called = values >= threshold
        recall = (truth & called).sum() / total
        score += (recall - before) * (truth & called).sum() / called.sum()
        before = recall
    return score


@pytest.mark.parametrize("seed", range(4))
def test_average_precision_is_that_of_the_definition(seed):
    truth, values = frames(seed)
    expected = [reference(truth[:, label], values[:, label]) for label in range(3)]
    assert average_precisions(truth, values).tolist() == pytest.approx(expected)


def test_average_precision_of_labels_that_no_or_every_frame_has():
    truth = np.array([[1, 0, 1], [1, 0, 0]], bool)
    values = np.array([[0.2, 0.3, 0.9], [0.4, 0.1, 0.2]])
    assert average_precisions(truth, values).tolist() == [1, 0, 1]
    assert np.isnan(average_precisions(truth, values, "skip")).tolist() == [False, True, False]
    with pytest.raises(FedMedError, match="use .n, J. for both"):
        average_precisions(truth, values[:, :2])


def test_a_mean_without_any_score_is_not_a_number():
    assert np.isnan(macro(np.array([np.nan, np.nan]))) and macro(np.array([np.nan, 0.5])) == 0.5
