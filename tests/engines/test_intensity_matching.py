import pytest
import torch

from fedmed.data.cache import CaseCacheDataset
from fedmed.data.intensities import histogram
from fedmed.engines.gradient_correction import RoundStart
from fedmed.engines.intensity_matching import IntensityMatching
from fedmed.engines.intensity_shares import IntensityShares


def dataset(*images):
    return CaseCacheDataset([{"image": image} for image in images], [])


@pytest.fixture
def dark():
    torch.manual_seed(0)
    return torch.normal(0.2, 0.05, (1, 40, 40)).clamp(0, 1)


def test_a_labelled_site_tells_its_histogram_once(dark):
    item = IntensityShares(dataset(dark, dark * 2))
    assert item.extras() == {} and item.state_dict() == {}
    item.begin(RoundStart({}))
    expected = histogram([dark, dark * 2])
    assert torch.equal(item.extras()["intensity_shares"], expected)
    again = IntensityShares(dataset())  # would be refused if it looked again
    again.load_state_dict(item.state_dict())
    again.begin(RoundStart({}))
    assert torch.equal(again.extras()["intensity_shares"], expected)


def test_a_bright_site_is_shown_as_dark_as_the_others(dark):
    bright = dark**0.6
    matching = IntensityMatching(dataset(bright))
    assert matching(bright) is bright
    matching.receive(histogram([dark]))
    assert matching.gamma == pytest.approx(1 / 0.6, rel=0.03)
    assert (matching(bright) - dark).abs().max() < 0.02


def test_the_site_reads_its_images_once_for_all_rounds(dark):
    first = IntensityMatching(dataset(dark**0.6))
    assert first.state_dict() == {}
    first.receive(histogram([dark]))
    again = IntensityMatching(dataset())  # would be refused if it looked again
    again.load_state_dict(first.state_dict())
    again.receive(histogram([dark]))
    assert again.gamma == first.gamma != 1.0


def test_intensities_beyond_the_range_do_not_become_nan(dark):
    matching = IntensityMatching(dataset(dark**0.6))
    matching.receive(histogram([dark]))
    assert matching(torch.tensor([-0.1, 1.2])).tolist() == [0.0, 1.0]


def test_without_a_dataset_nothing_is_matched(dark):
    matching = IntensityMatching()
    matching.receive(histogram([dark]))
    assert matching.gamma == 1.0
