"""A site's amplitudes for the others, the factors that it finds from theirs, and the images that the network sees."""

import pytest
import torch

from fedmed.data.augment.bands import BANDS, band_amplitudes, band_factors, with_factors
from fedmed.errors import DataError, FedMedError
from fedmed.training.corrections.bands import MatchedBands, OwnBands

from . import conftest


def noise(spread, seed=0, colours=1):
    draw = torch.Generator().manual_seed(seed)
    return torch.normal(0.5, spread, (colours, 64, 64), generator=draw).clamp(0, 1)


def reported(*images):
    return OwnBands(conftest.listed(images))()


def begun(local, *others, kept=None, **options):
    return conftest.begun(MatchedBands(OwnBands(conftest.listed(local)), **options), *others, kept=kept)


def test_a_site_tells_one_vector_of_all_its_images():
    one, other = noise(0.1), noise(0.2, 1)
    assert torch.equal(reported(one, other)["amplitude_bands"], band_amplitudes([one, other]))


def test_a_site_is_drawn_to_the_mean_of_all_itself_among_them_and_keeps_the_factors():
    local, first, second = noise(0.15), reported(noise(0.05, 1)), reported(noise(0.04, 2))
    term = begun([local], first, second)
    of_all = [reported(local), first, second]
    mean = sum(values["amplitude_bands"] for values in of_all) / 3
    factors = term.state_dict()["factors"]
    assert torch.equal(factors, band_factors(reported(local)["amplitude_bands"], mean))
    assert factors[0, 1:].tolist() == pytest.approx([0.08 / 0.15] * BANDS, rel=0.15)
    again = begun([], kept=term.state_dict())  # without images, and without the others' a second time
    batch = torch.rand(3, 1, 20, 20)
    assert torch.equal(again.change_images(batch), with_factors(batch, factors))
    assert torch.equal(again.change_scored_images(batch), with_factors(batch, factors))
    assert torch.equal(torch.tensor(MatchedBands.inference_settings(term.state_dict())["image_bands"]), factors)


def test_all_sites_that_tell_are_drawn_to_the_same():
    images = [0.5 + (noise(0.1) - 0.5) * contrast for contrast in (0.4, 0.55, 1)]
    shown = []
    for place, image in enumerate(images):
        others = [reported(other) for other in images[:place] + images[place + 1 :]]
        shown.append(begun([image], *others).change_images(image[None])[0])
    result = torch.stack([band_amplitudes([image]) for image in shown])
    assert torch.allclose(result, result.mean(dim=0), rtol=1e-3)


def test_part_of_the_way():
    whole, half = (begun([noise(0.15)], reported(noise(0.05, 1)), strength=s).state_dict()["factors"] for s in (1, 0.5))
    assert torch.allclose(half, whole.sqrt(), atol=1e-4)


def test_images_that_are_alike_stay_as_they_are():
    batch, term = noise(0.1)[None], begun([noise(0.1)], reported(0.5 + (noise(0.1) - 0.5) * 1.15))
    assert term.change_images(batch) is batch and MatchedBands.inference_settings(term.state_dict()) == {}


def test_images_of_other_colours_or_of_another_range_are_refused():
    with pytest.raises(FedMedError, match="of images with 3 colours, and this site's have 1"):
        begun([noise(0.1)], reported(noise(0.1, colours=3)))
    with pytest.raises(DataError, match="image 1 of the list has"):
        reported(255 * noise(0.1))
