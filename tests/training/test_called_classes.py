"""Calls of a model before and after a change, without labels."""

import pytest
import torch

from fedmed.training.label_counts import Called, called, classes_called, entropy, objection


def looked_at(*rows, several=False):
    images = [torch.tensor(row) for row in rows]
    return called((entropy(one, several), classes_called(one, several)) for one in images)


def test_entropy_and_shares_of_classes():
    result = looked_at([0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0])
    assert result.entropy == pytest.approx(0.25) and result.shares == (0.5, 0.5) and result.classes == 2


def test_of_masks_a_class_is_called_where_one_voxel_has_it():
    probabilities = torch.zeros(3, 2, 2)
    probabilities[0], probabilities[:, 1, 1] = 1, torch.tensor([0.0, 0.0, 1.0])
    assert classes_called(probabilities).tolist() == [True, False, True]
    assert entropy(probabilities) == pytest.approx(0, abs=1e-9)
    assert entropy(torch.full((3, 2, 2), 1 / 3)) == pytest.approx(1)


def test_classes_that_may_be_there_at_once():
    result = looked_at([0.9, 0.9], [0.5, 0.1], several=True)
    assert result.shares == (1.0, 0.5) and looked_at([0.5, 0.5], several=True).entropy == pytest.approx(1)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (Called(0.2, (0.5, 0.5)), Called(0.1, (1.0, 0.0)), "calls one class alone, where it called 2 before"),
        (Called(0.2, (0.5, 0.5)), Called(0.1, (0.995, 0.005)), "calls one class alone"),
        (Called(0.2, (0.5, 0.5)), Called(0.1, (0.0, 0.0)), "calls one class alone"),
        (Called(0.2, (0.5, 0.5)), Called(0.26, (0.5, 0.5)), "less sure (mean entropy 0.26 of 1, 0.20 before)"),
        (Called(0.2, (0.5, 0.5)), Called(0.24, (0.9, 0.1)), ""),
        (Called(0.2, (0.9, 0.1)), Called(0.3, (0.6, 0.4)), ""),
        (Called(0.2, (1.0, 0.0)), Called(0.1, (1.0, 0.0)), ""),
        (Called(0.0, (1.0, 0.0)), Called(0.4, (0.5, 0.5)), ""),
    ],
)
def test_what_speaks_against_a_change(before, after, message):
    """A model that called one class alone before has nothing to lose."""
    assert (message in objection(before, after)) if message else objection(before, after) == ""
