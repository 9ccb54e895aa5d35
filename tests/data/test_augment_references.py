"""Means of the hospitals of its training that a bundle carries."""

import pytest
import torch

from fedmed.data.augment.colours import COLOURS, Colours, mean_of
from fedmed.data.augment.intensities import INTENSITIES, mean_values, references
from fedmed.errors import BundleError


def shares(*at):
    return {INTENSITIES: torch.nn.functional.one_hot(torch.tensor(at), 100).float().mean(0)}


def test_the_mean_of_histograms_and_of_how_many():
    means = mean_values([shares(0), shares(1), shares(1, 2)])
    assert means["sites"] == 3 and sum(means[INTENSITIES]) == pytest.approx(1, abs=1e-4)
    assert means[INTENSITIES][:3] == [round(1 / 3, 6), 0.5, round(1 / 6, 6)]
    carried = references({"federation": {"references": means}})
    assert carried[INTENSITIES].shape == (100,)


def test_colours_of_sites_together_are_wider_than_each():
    sites = [torch.tensor([mean, 0, 0, 0.5, 0.1, 0.1, 0.2, 0.1, 0.1]) for mean in (1.0, 2.0)]
    means = mean_values({COLOURS: one, "images": 12} for one in sites)
    expected = mean_of(Colours.of(one.view(3, 3)) for one in sites)
    assert torch.allclose(torch.tensor(means[COLOURS]).view(3, 3), expected.stacked(), atol=1e-5)
    assert means[COLOURS][3] > 0.5 and "images" not in means


def test_of_one_site_alone_nothing_is_kept_and_no_other_values():
    """The mean would be its own values."""
    assert mean_values([shares(0)]) == {} == mean_values([])
    assert mean_values([{"amplitude_bands": torch.ones(17)}, {"amplitude_bands": torch.ones(17)}]) == {}
    assert mean_values([shares(0), {INTENSITIES: torch.ones(50)}]) == {}


@pytest.mark.parametrize("metadata", [{}, {"federation": None}, {"federation": {}}, {"federation": {"references": {}}}])
def test_a_bundle_may_carry_none(metadata):
    assert references(metadata) == {}


@pytest.mark.parametrize("values", [[1.0], "many", [1e9] * 9, [True] * 9, [None] * 9])
def test_what_is_no_mean_is_refused(values):
    with pytest.raises(BundleError, match="'colour_statistics' of its 'references' is not 9 such numbers"):
        references({"federation": {"references": {COLOURS: values}}})
