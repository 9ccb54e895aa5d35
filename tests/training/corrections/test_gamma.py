"""A site's histogram for the others, the gammas that it finds from theirs, and the images that the network sees."""

from pathlib import Path

import pytest
import torch
import yaml

from fedmed.data.augment.intensities import histogram
from fedmed.errors import DataError
from fedmed.training.corrections.gamma import ALIKE, MatchedGamma, OwnIntensities

from . import conftest


@pytest.fixture
def dark():
    return torch.normal(0.2, 0.05, (1, 40, 40), generator=torch.Generator().manual_seed(0)).clamp(0, 1)


def reported(*images):
    return OwnIntensities(conftest.listed(images))()


def begun(local, *others, kept=None):
    return conftest.begun(MatchedGamma(OwnIntensities(conftest.listed(local))), *others, kept=kept)


def test_a_site_tells_one_histogram_of_all_its_images(dark):
    assert torch.equal(reported(dark, dark * 2)["intensity_shares"], histogram([dark, dark * 2]))


def test_a_bright_sites_gamma_is_found_and_kept(dark):
    term = begun([dark], reported(dark**0.6))
    gamma = term.state_dict()["gamma"]
    assert gamma == pytest.approx(0.6**0.5, rel=0.03)
    again = begun([], kept=term.state_dict())  # without images, and without the others' a second time
    assert again.state_dict() == term.state_dict()
    assert again.decision.startswith(f"images to the power of {gamma:.2f}, half of the way")
    batch = torch.rand(3, 1, 4)
    assert torch.equal(again.change_images(batch), batch**gamma)
    assert torch.equal(again.change_scored_images(batch), batch**gamma)


def test_it_is_that_of_the_mean_of_all_others(dark):
    one, other = reported(dark**0.5), reported(dark**0.8)
    mean = {"intensity_shares": (one["intensity_shares"] + other["intensity_shares"]) / 2}
    assert begun([dark], one, other).state_dict() == begun([dark], mean).state_dict()


@pytest.mark.parametrize("gamma", [0.79, 0.95, 1.05, 1.25])
def test_images_that_are_nearly_as_bright_stay_as_they_are_and_that_is_said(dark, caplog, gamma):
    with caplog.at_level("INFO", logger="fedmed.site"):
        batch, term = dark[None], begun([dark], reported(dark**gamma))
    assert term.change_images(batch) is batch and term.state_dict() == {"gamma": 1.0}
    assert "nearly as bright as the others'" in caplog.text


@pytest.mark.parametrize("sign", [1, -1])
def test_what_is_left_out_moves_no_intensity_by_more_than_training_does(sign):
    x = torch.linspace(0, 1, 1001)
    config = Path(__file__).parents[3] / "bundles/covid_ct_segmentation/configs/train.yaml"
    assert (x ** (ALIKE**sign) - x).abs().max() <= yaml.safe_load(config.read_text())["intensity_shift"]


@pytest.mark.parametrize("gamma", [0.7, 1.45])
def test_a_larger_gamma_counts_half(dark, gamma):
    assert begun([dark], reported(dark**gamma)).state_dict()["gamma"] == pytest.approx(gamma**0.5, rel=0.03)


def test_what_lies_beyond_the_range_does_not_become_nan(dark):
    term = begun([dark], reported(dark**0.6))
    assert term.change_images(torch.tensor([[-0.1, 1.2]])).tolist() == [[0.0, 1.0]]


def test_images_of_another_range_are_refused():
    with pytest.raises(DataError, match="image 1 of the list has 0 to 255; .* leave 'algorithm' out of the study"):
        reported(torch.tensor([[0.0, 255.0]]))
