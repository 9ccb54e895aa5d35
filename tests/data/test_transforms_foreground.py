import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedmed.data.transforms.foreground import BACKGROUND, FOREGROUND, ForegroundIndexd


def indices(mask, limit):
    case = ForegroundIndexd(limit=limit)({"label": mask})
    return case[FOREGROUND], case[BACKGROUND]


def test_all_indices_below_the_limit():
    mask = torch.tensor([[[[0, 1], [1, 0]], [[0, 0], [0, 1]]]], dtype=torch.uint8)
    foreground, background = indices(mask, limit=100)
    assert foreground.tolist() == [1, 2, 7] and background.tolist() == [0, 3, 4, 5, 6]
    assert foreground.dtype == torch.int32


@given(seed=st.integers(0, 1000), limit=st.integers(1, 200), share=st.floats(0, 1))
def test_subsample_is_spread_evenly_and_stays_in_its_class(seed, limit, share):
    mask = torch.from_numpy((np.random.default_rng(seed).random((1, 7, 9, 5)) < share).astype(np.uint8))
    for kept, whole in zip(indices(mask, limit), (mask > 0, mask == 0), strict=True):
        all_of_class = torch.nonzero(whole.flatten()).flatten()
        assert len(kept) == min(limit, len(all_of_class)) and kept.unique().numel() == kept.numel()
        assert torch.isin(kept, all_of_class).all()
        positions = torch.searchsorted(all_of_class, kept.long())
        if len(kept) > 1:
            steps = positions.diff()
            assert steps.max() - steps.min() <= 1


def test_empty_classes():
    foreground, background = indices(torch.zeros(1, 3, 3, 3), limit=5)
    assert foreground.numel() == 0 and background.numel() == 5


def test_limit_must_be_positive():
    with pytest.raises(ValueError, match="limit is 0"):
        ForegroundIndexd(limit=0)
