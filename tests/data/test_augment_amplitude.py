"""Amplitudes are mixed as Eq. 4.15 says, phases stay, and a seed gives the same images again."""

import math

import pytest
import torch

from fedmed.errors import FedMedError
from fedmed.systems.algorithms.feddg import AmplitudeMix, check_low_frequency, half_spectra, mix_amplitudes

SIZES = [(2, 3, 6, 8), (1, 1, 7, 5), (2, 3, 9, 16), (2, 1, 4, 5, 6)]


def images(shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mixed(x, amplitudes, strength):
    return mix_amplitudes(x, amplitudes, torch.full((len(x),), strength, dtype=torch.float64))


def exact(x):
    """The bank's entries without its rounding."""
    axes = tuple(range(2, x.ndim))
    return torch.fft.rfftn(x, dim=axes).abs() / math.prod(x.shape[2:])


def slow(x, other, strength):
    """The equation as it is written, on the whole spectrum; gives real and imaginary part."""
    axes = tuple(range(2, x.ndim))
    X, Y = torch.fft.fftn(x, dim=axes), torch.fft.fftn(other, dim=axes)
    phase = torch.where(X.abs() > 1e-12, X.angle(), 0)
    result = torch.fft.ifftn(((1 - strength) * X.abs() + strength * Y.abs()) * torch.exp(1j * phase), dim=axes)
    return result.real, result.imag


def test_four_pixels_worked_out_by_hand():
    x = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]], dtype=torch.float64)
    assert torch.fft.fft2(x).real.tolist() == [[[[10, -2], [-4, 0]]]]
    assert exact(x)[0, 0].mul(4).tolist() == [[10, 2], [4, 0]]
    twenty = torch.tensor([[[[20.0, 0.0], [0.0, 0.0]]]], dtype=torch.float64) / 4
    assert torch.allclose(mixed(x, twenty, 0.5)[0, 0], torch.tensor([[3, 3.5], [4, 4.5]]).double(), atol=1e-12)
    assert torch.allclose(mixed(x, twenty, 1.0), torch.full_like(x, 5), atol=1e-12)
    assert torch.allclose(mixed(x, twenty, 0.0), x, atol=1e-12)
    four = exact(torch.tensor([[[[4.0, 0.0], [0.0, 0.0]]]], dtype=torch.float64))
    torch.testing.assert_close(four * 4, torch.full_like(x, 4))
    assert torch.allclose(mixed(x, four, 0.5)[0, 0], torch.tensor([[0.5, 1.0], [1.5, 4.0]]).double(), atol=1e-12)


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_half_spectra_give_what_whole_ones_give(shape, strength):
    x, other = images(shape), images(shape, 1)
    real, imaginary = slow(x, other, strength)
    assert torch.allclose(mixed(x, exact(other), strength), real, atol=1e-10)
    assert imaginary.abs().max() < 1e-6
    assert torch.allclose(mixed(x, half_spectra(other), strength).double(), real, atol=1e-3), "float16"


@pytest.mark.parametrize("shape", SIZES)
def test_brightness_moves_in_a_line_and_phases_stay(shape):
    x, other = images(shape), images(shape, 1)
    axes = tuple(range(2, x.ndim))
    assert torch.allclose(mixed(x, exact(other), 0.0), x, atol=1e-10)
    for strength in (0.25, 0.9):
        result = mixed(x, exact(other), strength)
        between = (1 - strength) * x.mean(dim=axes) + strength * other.mean(dim=axes)
        assert torch.allclose(result.mean(dim=axes), between, atol=1e-12)
        turned = torch.fft.rfftn(result, dim=axes) * torch.fft.rfftn(x, dim=axes).conj()
        assert (turned.imag.abs() <= 1e-9 * (1 + turned.abs())).all() and (turned.real >= -1e-9).all()


def test_an_image_of_one_colour_has_phases_of_nought():
    flat, black = torch.full((1, 1, 4, 6), 0.5).double(), torch.zeros(1, 1, 4, 6).double()
    other = images((1, 1, 4, 6))
    for x in (flat, black):
        assert torch.allclose(mixed(x, exact(other), 0.5), slow(x, other, 0.5)[0], atol=1e-12)
        assert torch.isfinite(mixed(x.float(), half_spectra(other), 1.0)).all()


def test_low_frequencies_alone_are_mixed_and_kept():
    x, other = images((2, 3, 10, 16)), images((2, 3, 10, 16), 1)
    bank = half_spectra(other, 0.2)  # up to 2: rows 0, 1, 2, -2, -1, and columns 0, 1, 2
    assert bank.shape == (2, 3, 5, 3)
    assert torch.equal(bank, half_spectra(other)[:, :, [0, 1, 2, 8, 9]][..., :3])
    result = mix_amplitudes(x, bank, torch.ones(2), 0.2)
    got, was, wanted = (torch.fft.rfft2(image) for image in (result, x, other))
    near = torch.zeros(10, 9, dtype=bool)
    near[[[0], [1], [2], [8], [9]], [0, 1, 2]] = True
    assert torch.allclose(got[..., ~near], was[..., ~near], atol=1e-9)
    assert torch.allclose(got[..., near].abs(), wanted[..., near].abs(), atol=0.1)
    assert half_spectra(x, 0.01).shape == (2, 3, 1, 1), "brightness alone"


def test_the_same_seed_gives_the_same_images_in_the_range_of_pixels():
    bank, x = half_spectra(images((5, 3, 6, 8), 1)), images((4, 3, 6, 8)).float()
    before, state = x.clone(), torch.get_rng_state()
    first, again, other = (AmplitudeMix(bank, seed) for seed in (3, 3, 4))
    one, two = first(x), first(x)
    assert torch.equal(one, again(x)) and torch.equal(two, again(x)) and torch.equal(x, before)
    assert not torch.equal(one, two) and not torch.equal(one, other(x)) and one.dtype == torch.float32
    assert one.min() >= 0 and one.max() <= 1 and AmplitudeMix(bank)(x.half()).dtype == torch.float32
    assert torch.equal(torch.get_rng_state(), state), "no other random numbers change"


def test_each_image_gets_its_own_draws():
    x = images((1, 3, 6, 8)).float().expand(40, -1, -1, -1)
    means = AmplitudeMix(half_spectra(torch.stack([torch.zeros(3, 6, 8), torch.ones(3, 6, 8)])))(x).mean(dim=(1, 2, 3))
    assert means.unique().numel() == 40 and (means < x.mean()).any() and (means > x.mean()).any()


@pytest.mark.parametrize("low", [None, 0.2])
def test_a_bank_of_another_image_size_is_refused(low):
    mix = AmplitudeMix(half_spectra(images((2, 3, 6, 20)), low), low_frequency=low)
    with pytest.raises(FedMedError, match="bank of amplitudes has entries of 3 × .* need the same image size"):
        mix(images((1, 3, 20, 20)))
    with pytest.raises(FedMedError, match="images of 1 × 6 × 20 pixels"):
        mix(images((1, 1, 6, 20)))


def test_wrong_arguments():
    with pytest.raises(FedMedError, match="bank of amplitudes is empty"):
        AmplitudeMix(torch.empty(0, 3, 6, 5))
    for share in (0, 0.6, True, "low"):
        with pytest.raises(FedMedError, match="'low_frequency' is .*; give a share of the shorter side"):
            check_low_frequency(share)
    assert half_spectra(torch.ones(1, 1, 2, 2)).dtype == torch.float16


def test_an_entry_of_a_frame_takes_a_quarter_of_its_whole_spectrum_in_float32():
    frame = half_spectra(torch.rand(1, 3, 135, 240))
    assert frame.shape == (1, 3, 135, 121) and frame.nbytes == 98_010
