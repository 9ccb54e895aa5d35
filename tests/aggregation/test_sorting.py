"""Sorting networks: right for every input, by the 0-1 principle."""

import itertools

import pytest

from fedmed.aggregation.robust import sorting_network


def apply(comparators, values):
    values = list(values)
    for i, j in comparators:
        values[i], values[j] = min(values[i], values[j]), max(values[i], values[j])
    return values


@pytest.mark.parametrize("n", range(1, 11))
def test_every_input_of_zeros_and_ones_is_sorted(n):
    """Knuth, TAOCP vol. 3, 5.3.4, theorem Z: then every input is."""
    comparators = sorting_network(n)
    assert all(i < j < n for i, j in comparators)
    for values in itertools.product((0, 1), repeat=n):
        assert apply(comparators, values) == sorted(values)


@pytest.mark.parametrize("n", range(1, 11))
@pytest.mark.parametrize("cut", range(5))
def test_wanted_ranks_are_right_with_fewer_comparators(n, cut):
    wanted = range(cut, n - cut)
    comparators = sorting_network(n, wanted)
    assert len(comparators) <= len(sorting_network(n))
    for values in itertools.product((0, 1), repeat=n):
        result = apply(comparators, values)
        assert [result[rank] for rank in wanted] == sorted(values)[cut : n - cut]


def test_a_median_of_sixteen_needs_fewer():
    assert len(sorting_network(16)) == 63 and len(sorting_network(16, (7, 8))) == 53
