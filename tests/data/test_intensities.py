import math

import pytest
import torch

from fedmed.data.augment.intensities import BINS, histogram, matching_gamma
from fedmed.errors import DataError


def test_the_shares_are_those_of_the_bins():
    image = torch.tensor([0.0, 0.004, 0.055, 0.5, 0.999, 1.0])
    shares = histogram([image])
    assert shares.shape == (BINS,)
    expected = {0: 2 / 6, 5: 1 / 6, 50: 1 / 6, 99: 2 / 6}
    assert {int(at): float(shares[at]) for at in shares.nonzero()} == pytest.approx(expected)


def test_each_image_counts_alike_whatever_its_size():
    small, large = torch.zeros(1, 10), torch.ones(1, 50, 40)
    assert histogram([small, large])[[0, -1]].tolist() == [0.5, 0.5]


def test_of_a_large_image_voxels_evenly_spread_count():
    ramp = torch.linspace(0, 1, 1_000_001)
    assert torch.allclose(histogram([ramp]), torch.full((BINS,), 1 / BINS), atol=1e-4)


@pytest.mark.parametrize("gamma", [0.5, 0.8, 1.0, 1.3, 2.0])
def test_the_gamma_that_was_undone_is_found(gamma):
    """Two peaks, as lungs and soft tissue are, between black and white."""
    drawn = torch.Generator().manual_seed(0)
    peaks = [torch.normal(*peak, generator=drawn) for peak in ((0.2, 0.05, (50_000,)), (0.8, 0.06, (30_000,)))]
    peaks = torch.cat(peaks).clamp(0, 1)
    ends = torch.cat([torch.zeros(40_000), torch.ones(60_000)])
    wanted, local = (histogram([torch.cat([ends, peaks**power])]) for power in (1.0, 1 / gamma))
    assert matching_gamma(local, wanted) == pytest.approx(gamma, rel=0.03)


def test_equal_histograms_need_none():
    uniform = torch.full((BINS,), 1 / BINS)
    assert matching_gamma(uniform, uniform) == 1.0
    black = torch.zeros(BINS).index_fill(0, torch.tensor([0]), 1.0)
    assert matching_gamma(black, black) == 1.0


def test_two_values_by_hand():
    """All voxels at 0.25 here and at 0.5 there: the square root, but for the width of a bin."""
    local, wanted = (histogram([torch.full((8,), value)]) for value in (0.255, 0.505))
    assert matching_gamma(local, wanted) == pytest.approx(math.log(0.505) / math.log(0.255), rel=0.03)


def test_other_ranges_are_refused_by_number_and_range_and_no_image_too():
    for values in ([-0.2, 1.0], [0.0, 300.0], [0.5, math.nan]):
        with pytest.raises(DataError, match="image 2 of the list has .* to .*leave 'algorithm' out"):
            histogram([torch.zeros(3), torch.tensor(values)])
    with pytest.raises(DataError, match="needs at least one image"):
        histogram([])
