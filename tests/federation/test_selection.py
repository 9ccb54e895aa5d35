"""The choice of the model that is kept."""

import pytest
import torch

from fedmed.federation.selection import ModelSelection


def test_selection_uses_labelled_sites_only_and_keeps_the_earlier_on_a_tie():
    selection = ModelSelection(["a", "b"])
    assert selection.score({"a": 0.2, "b": 0.4, "u": 0.9}) == pytest.approx(0.3)
    assert selection.score({"a": 0.9}) is None
    first, second = {"w": torch.zeros(1)}, {"w": torch.ones(1)}
    assert (
        selection.offer(-1, 0.3, first) and not selection.offer(0, 0.3, second) and not selection.offer(1, None, second)
    )
    assert selection.best_round == -1 and selection.best_tensors is first
    assert selection.offer(2, 0.4, second)
