"""Batches of several loaders in turn."""

import pytest
import torch
from torch.utils.data import DataLoader

from fedmed.data.cases import Alternating
from fedmed.errors import DataError


def test_a_batch_of_each_in_turn_and_again_in_another_pass():
    mixed = Alternating([["a", "b", "c"], [1, 2], ["x"]])
    assert list(mixed) == list(mixed) == ["a", 1, "x", "b", 2, "c"] and len(mixed) == 6


def test_loaders_of_tensors():
    one, other = (DataLoader(torch.arange(first, first + 4), batch_size=2) for first in (0, 10))
    mixed = Alternating([one, other])
    assert [batch.tolist() for batch in mixed] == [[0, 1], [10, 11], [2, 3], [12, 13]]
    assert mixed.dataset is one.dataset


def test_no_loader():
    with pytest.raises(DataError, match="there are no loaders; list one at least"):
        Alternating([])
