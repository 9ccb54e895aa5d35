"""Amplitudes are those of the equation, factors are drawn to what is wanted, and phases stay."""

import importlib
import math
from pathlib import Path

import pytest
import torch

from fedmed.data.augment.bands import BANDS, band_amplitudes, band_factors, with_factors
from fedmed.errors import DataError

BUNDLES = Path(__file__).resolve().parents[2] / "bundles"
SHAPES = [(1, 64, 96), (3, 40, 33), (1, 40, 40, 20)]


def noise(shape, spread=0.05, seed=0):
    return torch.normal(0.5, spread, shape, generator=torch.Generator().manual_seed(seed)).clamp(0, 1)


def slow(tile):
    """Of one tile (H, W), frequency by frequency, as a transform is written."""
    height, width = tile.shape
    mean, sums, counts = float(tile.mean()), [0.0] * BANDS, [0] * BANDS
    taper = [[(0.5 - 0.5 * math.cos(2 * math.pi * y / height)) * (0.5 - 0.5 * math.cos(2 * math.pi * x / width))
              for x in range(width)] for y in range(height)]  # fmt: skip
    norm = math.sqrt(sum(t**2 for row in taper for t in row))
    for v in range(height):
        for u in range(width):
            total = sum((float(tile[y, x]) - mean) * taper[y][x] * complex(math.cos(a), -math.sin(a))
                        for y in range(height) for x in range(width)
                        for a in [2 * math.pi * (v * y / height + u * x / width)])  # fmt: skip
            near = [2 * min(v, height - v) / height, 2 * min(u, width - u) / width]
            if (radius := math.hypot(*near)) > 0:
                band = min(math.ceil(round(radius * BANDS, 6)) - 1, BANDS - 1)
                sums[band], counts[band] = sums[band] + abs(total) / norm, counts[band] + 1
    return [mean, *(s / n if n else 0.0 for s, n in zip(sums, counts, strict=True))]


def test_amplitudes_are_those_of_the_transform():
    tile = torch.rand(8, 6, generator=torch.Generator().manual_seed(1))
    assert band_amplitudes([tile[None]]).tolist() == pytest.approx(slow(tile), abs=1e-5)


def test_two_by_two_by_hand():
    """Of sides of two the taper is 0, 1, so what counts is the last voxel: 0.8, 0.3 above the mean, in every frequency.

    (1, 0) and (0, 1) lie at radius 1, in the last band, and (1, 1) beyond.
    """
    amplitudes = band_amplitudes([torch.tensor([[[0.2, 0.6], [0.4, 0.8]]])]).tolist()
    assert amplitudes == pytest.approx([0.5, *[0.0] * (BANDS - 1), 0.3])


def test_noise_is_as_strong_in_every_band_and_half_as_strong_of_half_the_contrast():
    image = noise((1, 256, 256))
    amplitudes, half = band_amplitudes([image]), band_amplitudes([0.5 + (image - 0.5) / 2])
    rayleigh = 0.05 * math.sqrt(math.pi) / 2  # mean absolute value of a complex normal number
    assert amplitudes[1:].tolist() == pytest.approx([rayleigh] * BANDS, rel=0.1)
    assert torch.allclose(half[1:], amplitudes[1:] / 2) and half[0] == pytest.approx(0.5, abs=1e-3)


def test_tiles_of_one_intensity_do_not_count_and_images_count_alike():
    one, other = noise((1, 64, 64), seed=1), noise((1, 32, 32), 0.1, seed=2)
    air = torch.zeros(1, 64, 64)
    mean = (band_amplitudes([one]) + band_amplitudes([other])) / 2
    assert torch.allclose(band_amplitudes([torch.cat([one, air], dim=2), other, air]), mean)


def test_colours_are_told_apart():
    grey = noise((1, 32, 32))
    amplitudes = band_amplitudes([torch.cat([grey, grey / 2])]).view(2, 1 + BANDS)
    assert torch.allclose(amplitudes[0], 2 * amplitudes[1])


def test_factors_by_hand():
    local, wanted = torch.full((1 + BANDS,), 0.2), torch.full((1 + BANDS,), 0.2)
    wanted[1], wanted[2], wanted[3], local[4], wanted[5] = 0.1, 0.9, 0.3, 0.0, -0.1
    (factors,) = band_factors(local, wanted).tolist()
    assert factors[:7] == pytest.approx([1, 0.5, 2, 1.5, 1, 0.5, 1])
    (part,) = band_factors(local, wanted, 0.5).tolist()
    assert part[1:4] == pytest.approx([0.7071, 1.4142, 1.2247])


@pytest.mark.parametrize("shape", SHAPES)
def test_factors_of_one_give_the_image_back_and_equal_ones_scale_it(shape):
    batch = torch.stack([noise(shape, 0.2, seed) for seed in (0, 1)])
    factors = torch.ones(shape[0], 1 + BANDS)
    assert torch.allclose(with_factors(batch, factors), batch, atol=1e-6)
    assert torch.allclose(with_factors(batch, factors * 1.5), batch * 1.5, atol=1e-6)


def test_a_wave_gets_the_factor_of_its_band_and_stays_where_it_is():
    """9 waves of 64 voxels: 2 · 9 / 64 = 4.5 / 16, the middle of the fifth band. Mirrored at its crests it goes on."""
    wave = 0.5 + 0.3 * torch.cos(2 * torch.pi * 9 * torch.arange(65) / 64)
    batch = wave.expand(1, 1, 40, 65)
    factors = torch.ones(1, 1 + BANDS)
    factors[0, 5] = 0.5
    inside = (slice(None), slice(None), slice(None), slice(16, 49))
    expected = 0.5 + (batch - 0.5) / 2
    assert torch.allclose(with_factors(batch, factors)[inside], expected[inside], atol=0.02)
    factors[0, 5], factors[0, 0] = 1.0, 0.8
    assert torch.allclose(with_factors(batch, factors), batch - 0.1, atol=0.01), "frequency 0 alone: the mean"


def test_a_site_is_then_as_the_one_it_was_drawn_to():
    wanted = band_amplitudes([noise((1, 128, 128), 0.06, 3)])
    image = noise((1, 128, 128), 0.1, 4)
    shown = with_factors(image[None], band_factors(band_amplitudes([image]), wanted))[0]
    assert torch.allclose(band_amplitudes([shown]), wanted, rtol=0.05)


def test_a_patch_is_changed_as_its_scan_is():
    scan = noise((1, 96, 96), 0.1, 5)
    factors = torch.linspace(1, 0.5, 1 + BANDS)[None]
    patch = with_factors(scan[None, :, 16:80, 16:80], factors)[0, :, 16:48, 16:48]
    assert torch.allclose(patch, with_factors(scan[None], factors)[0, :, 32:64, 32:64], atol=2e-3)


@pytest.mark.parametrize(("place", "name"), [("covid_ct_segmentation", "covid_ct"),
                                             ("cxr_classification", "cxr_classifier")])  # fmt: skip
@pytest.mark.parametrize("shape", SHAPES)
def test_an_exported_bundle_does_the_same_bit_by_bit(place, name, shape, monkeypatch):
    monkeypatch.syspath_prepend(str(BUNDLES / place))
    bands = importlib.import_module(f"{name}.bands")
    image, factors = noise(shape, 0.2), torch.linspace(1.5, 0.6, shape[0] * (1 + BANDS)).view(-1, 1 + BANDS)
    changed = bands.BandFactorsd("image", factors.tolist())({"image": image})["image"]
    assert torch.equal(changed, with_factors(image[None], factors)[0])
    assert bands.BandFactorsd("image", None)({"image": image})["image"] is image
    with pytest.raises(ValueError, match="image_bands needs a list"):
        bands.BandFactorsd("image", [1.0, 2.0])
    with pytest.raises(ValueError, match="image_bands is of 2 colours"):
        bands.BandFactorsd("image", [[1.0, 1.0]] * 2)({"image": image[:1]})


def test_images_that_say_nothing_or_of_another_range_are_refused():
    with pytest.raises(DataError, match="an image that is not of one intensity"):
        band_amplitudes([torch.zeros(1, 8, 8)])
    with pytest.raises(DataError, match="image 2 of the list has 0 to 255; .* leave 'algorithm' out of the study"):
        band_amplitudes([noise((1, 8, 8)), torch.tensor([[[0.0, 255.0]]])])
