"""Images with the amplitudes of other images: how bright and how coarse is mixed, and where things are stays.

After Liu et al., CVPR 2021, arXiv 2103.06030, in the form of Markert 2022, Eq. 4.15. It works on plain pixels, before
they are normalised, on any number of axes: frames, X-rays, volumes.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedmed.errors import FedMedError, JobError
from fedmed.seeds import derive_seed

BANK = torch.float16  # its rounding moves pixels in [0, 1] by up to 2.3e-4, most of it of the mean brightness
LEAST = 1e-30  # below it an amplitude counts as 0, whose phase is 0


def half_spectra(images: Tensor, low_frequency: float | None = None) -> Tensor:
    """Amplitudes of images, as a bank holds them.

    Args:
        images: (B, C, H, W) or (B, C, D, H, W), real.
        low_frequency: see :func:`kept_frequencies`.

    Returns:
        (B, C, H, W // 2 + 1) float16, or fewer frequencies: amplitudes of ``rfft2`` divided by H · W, so the first one
        is the mean of the image.
    """
    sides = images.shape[2:]
    spectra = torch.fft.rfftn(_real(images), dim=_axes(images))
    index = kept_frequencies(sides, low_frequency)
    return (spectra if index is None else spectra[(..., *index)]).abs().div_(math.prod(sides)).to(BANK)


def kept_frequencies(sides: Sequence[int], low_frequency: float | None) -> tuple[Tensor, ...] | None:
    """Places in a half spectrum that are mixed; None = all of them.

    Args:
        sides: of an image in pixels.
        low_frequency: frequencies up to this share of the shorter side on each axis, a square around 0 as in the
            authors' code; None = the whole spectrum, as in the thesis.
    """
    if low_frequency is None:
        return None
    highest = math.floor(low_frequency * min(sides))
    places = [torch.arange(min(highest, sides[-1] // 2) + 1)]
    for side in reversed(sides[:-1]):
        frequencies = torch.arange(side)
        places.insert(0, frequencies[torch.minimum(frequencies, side - frequencies) <= highest])
    return torch.meshgrid(*places, indexing="ij")


def mix_amplitudes(images: Tensor, amplitudes: Tensor, strength: Tensor, low_frequency: float | None = None) -> Tensor:
    """``Re IFFT(((1 - λ) A + λ A_j) exp(i φ))`` of each image with amplitudes A and phases φ (Eq. 4.15).

    Args:
        images: (B, C, H, W) or (B, C, D, H, W), real; not modified.
        amplitudes: A_j for each image, as :func:`half_spectra` makes them.
        strength: (B,) λ in [0, 1]; 0 gives the image back.
        low_frequency: that of ``amplitudes``.

    Returns:
        As ``images``, not cut off to their range; float32 or float64.
    """
    images, axes, sides = _real(images), _axes(images), images.shape[2:]
    spectra = torch.fft.rfftn(images, dim=axes)
    index = kept_frequencies(sides, low_frequency)
    part = spectra if index is None else spectra[(..., *index)]
    share = strength.to(images).view(-1, *[1] * (images.ndim - 1))
    own, other = part.abs(), amplitudes * (share * math.prod(sides))  # of half precision in that of the images
    nothing = own < LEAST
    # A complex number times a real one keeps its phase; dividing by amplitudes would be several times slower.
    factor = torch.addcdiv(1 - share, other, own.clamp_(min=LEAST)).masked_fill_(nothing, 0)
    values = torch.view_as_real(part)
    values.mul_(factor.unsqueeze(-1))
    values[..., 0].add_(other.mul_(nothing))
    if index is not None:
        spectra[(..., *index)] = part
    return torch.fft.irfftn(spectra, s=sides, dim=axes)


class AmplitudeMix:
    """Mixes every image of a batch with a random entry of a bank, λ ~ U(0, 1), computed where the batch lies.

    Args:
        bank: (N, C, H, W // 2 + 1) float16, as :func:`half_spectra` makes it; its order decides which entry is drawn.
        seed: of the draws, which are made on the CPU: the same on every device.
        low_frequency: that of the bank.

    Raises:
        FedMedError: a bank without entries; when called, one of another image size.
    """

    def __init__(self, bank: Tensor, seed: int = 0, low_frequency: float | None = None) -> None:
        if not len(bank):
            raise FedMedError("the bank of amplitudes is empty; no image can be mixed with it")
        self.bank, self.low_frequency = bank, low_frequency
        self.generator = torch.Generator().manual_seed(derive_seed(seed, "amplitudes"))

    def __call__(self, images: Tensor) -> Tensor:
        """Return images (B, C, H, W) in [0, 1], mixed and cut off to that range; as float32 or float64."""
        index = kept_frequencies(sides := images.shape[2:], self.low_frequency)
        kept = (*sides[:-1], sides[-1] // 2 + 1) if index is None else index[0].shape
        if tuple(self.bank.shape[1:]) != (images.shape[1], *kept):
            raise FedMedError(
                f"the bank of amplitudes has entries of {_shown(self.bank.shape[1:])} frequencies, and images of "
                f"{_shown(images.shape[1:])} pixels have {_shown([images.shape[1], *kept])}; all sites need the same "
                "image size"
            )
        self.bank = self.bank.to(images.device)
        chosen = torch.randint(len(self.bank), (len(images),), generator=self.generator)
        strength = torch.rand(len(images), generator=self.generator)
        amplitudes = self.bank[chosen.to(images.device)]
        return mix_amplitudes(images, amplitudes, strength, self.low_frequency).clamp_(0, 1)


def check_bank(images: int, low_frequency: float | None) -> None:
    """Refuse settings of a bank: how many images of a site it holds, and which share of their spectra.

    Raises:
        JobError: says what to write.
    """
    if type(images) is not int or images < 1:
        raise JobError(f"'bank_images' is {images!r}; give a number of images, 1 or more")
    check_low_frequency(low_frequency)


def check_low_frequency(share: float | None) -> None:
    """Refuse a share of the spectrum that is not one.

    Raises:
        JobError: says what to write.
    """
    if share is not None and (type(share) not in (int, float) or not 0 < share <= 0.5):
        raise JobError(f"'low_frequency' is {share!r}; give a share of the shorter side, above 0 and at most 0.5")


def _real(images: Tensor) -> Tensor:
    return images if images.dtype in (torch.float32, torch.float64) else images.float()


def _axes(images: Tensor) -> tuple[int, ...]:
    return tuple(range(2, images.ndim))


def _shown(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
