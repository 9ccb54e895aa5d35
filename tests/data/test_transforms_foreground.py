import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedmed.data.cases import BACKGROUND, FOREGROUND, ForegroundIndexd


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
        parts = torch.arange(len(kept) + 1) * len(all_of_class) // max(len(kept), 1)
        assert (positions >= parts[:-1]).all() and (positions < parts[1:]).all(), "one of each part"


@pytest.mark.parametrize(
    "shape", [(256, 256, 64), (512, 512, 60), (128, 128, 64), (160, 160, 32), (512, 384, 40), (300, 210, 55)]
)
@pytest.mark.parametrize("lesion", [0, 5])
def test_background_is_drawn_from_every_slice_alike(shape, lesion):
    """256×256×64 and 512×512×60 with an empty mask share factors with the limit."""
    mask = torch.zeros(1, *shape, dtype=torch.uint8)
    mask[0, :lesion, :lesion, :1] = 1
    background = indices(mask, 65_536)[1].long()
    for places, size in zip(torch.unravel_index(background, shape), shape, strict=True):
        counts = torch.bincount(places, minlength=size)
        expected = len(background) / size
        assert (counts - expected).abs().max() < max(6 * expected**0.5, 1)


def test_the_same_voxels_every_time():
    mask = torch.zeros(1, 20, 20, 20)
    assert torch.equal(indices(mask, 100)[1], indices(mask, 100)[1])


def test_empty_classes():
    foreground, background = indices(torch.zeros(1, 3, 3, 3), limit=5)
    assert foreground.numel() == 0 and background.numel() == 5


def test_limit_must_be_positive():
    with pytest.raises(ValueError, match="limit is 0"):
        ForegroundIndexd(limit=0)
