import numpy as np
import pytest
from scipy.stats import wilcoxon

from fedmed.errors import DataError
from research.runner.paired_statistics import holm, rank_biserial, wilcoxon_signed_rank

# Differences 0.1, -0.2, 0.3, 0.4, 0.5: W- = 2. Of 32 signs, 3 give W- <= 2 ({}, {1}, {2}), so p = 2 * 3 / 32.
A, B = [0.6, 0.3, 0.8, 0.9, 0.7], [0.5, 0.5, 0.5, 0.5, 0.2]


def test_wilcoxon_of_a_small_sample_is_exact():
    assert wilcoxon_signed_rank(A, B) == pytest.approx(6 / 32)
    assert wilcoxon_signed_rank(B, A) == pytest.approx(6 / 32)
    assert wilcoxon_signed_rank([0.5 + 0.01 * i for i in range(1, 7)], [0.5] * 6) == pytest.approx(2 / 64)


def test_wilcoxon_keeps_the_ranks_of_equal_pairs():
    # Differences 0, 1, 2, 3 have the ranks -, 2, 3, 4: both of the 8 signs that are as extreme give p = 2/8.
    assert wilcoxon_signed_rank([0.5, 0.6, 0.7, 0.8], [0.5] * 4) == pytest.approx(2 / 8)
    # With -1 for 1: W- = 2; {} and {2} are as extreme, on both sides: 4/8. Without the zero, W- = 1 gives 4/8 too.
    assert wilcoxon_signed_rank([0.5, 0.4, 0.7, 0.8], [0.5] * 4) == pytest.approx(4 / 8)
    # Ranks 3, 4, 5 after two zeros, 3 against: W- = 3, the same two signs; without zeros they would weigh 1, 2, 3.
    assert rank_biserial([0.5, 0.5, 0.4, 0.7, 0.8], [0.5] * 5) == pytest.approx((4 + 5 - 3) / 15)


@pytest.mark.parametrize("pairs", [2, 5, 8, 14, 51])
def test_wilcoxon_is_that_of_scipy_with_and_without_ties_and_zeros(pairs):
    for steps in (2, 4, 1000):
        draw = np.random.default_rng([pairs, steps])
        a, b = draw.integers(1, steps + 1, pairs), draw.integers(0, steps, pairs)
        theirs = wilcoxon(a.astype(float), b, zero_method="pratt", correction=True).pvalue
        assert wilcoxon_signed_rank(a, b) == pytest.approx(theirs if (a != b).any() else 1, rel=1e-12)


@pytest.mark.parametrize("a", [[], [0.7], [0.5, 0.5, 0.5]])
def test_wilcoxon_without_evidence(a):
    assert wilcoxon_signed_rank(a, [0.5] * len(a)) == 1


def test_rounding_is_no_difference():
    a, b = [(0.1 + 0.2) + 0.3] * 8, [0.1 + (0.2 + 0.3)] * 8
    assert a != b
    assert (wilcoxon_signed_rank(a, b), rank_biserial(a, b)) == (1, 0)


def test_rank_biserial():
    assert rank_biserial(A, B) == pytest.approx((15 - 2 * 2) / 15)
    assert rank_biserial(B, A) == pytest.approx(-(15 - 2 * 2) / 15)
    assert rank_biserial([0.9, 0.8], [0.1, 0.2]) == 1
    assert rank_biserial([0.1, 0.2], [0.9, 0.8]) == -1
    assert rank_biserial([], []) == 0


@pytest.mark.parametrize("test", [wilcoxon_signed_rank, rank_biserial])
@pytest.mark.parametrize("a", [[0.5], [0.5, float("nan")]])
def test_bad_pairs(test, a):
    with pytest.raises(DataError, match="paired test of"):
        test(a, [0.1, 0.2])


def test_holm_steps_down():
    # 0.01 * 4, 0.02 * 3 -> 0.06, 0.03 * 2 -> 0.06, 0.04 * 1 -> at least its predecessor
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.5]) == [1, 1]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []
    with pytest.raises(DataError, match="probability"):
        holm([0.1, float("nan")])
