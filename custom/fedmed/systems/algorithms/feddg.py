"""FedDG's mixing of amplitudes (Liu et al., CVPR 2021, arXiv 2103.06030; Markert 2022)."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedmed.data.listed_images import plain, spread
from fedmed.errors import FedMedError, JobError
from fedmed.methods.algorithm import Algorithm
from fedmed.methods.declarations import BEFORE_TRAINING, ONCE, AuxiliaryValue
from fedmed.seeds import derive_seed
from fedmed.training.corrections.correction import Correction, Images, RoundStart
from fedmed.training.corrections.own_images import OTHERS

log = logging.getLogger("fedmed.site")
CHUNK = 32  # images whose spectra are computed at once
AMPLITUDE = "amplitude"  # what sites send each other, as a site's settings and the ledger call it
BANK = torch.float16  # its rounding moves pixels in [0, 1] by up to 2.3e-4, most of it of the mean brightness
LEAST = 1e-30  # below it an amplitude counts as 0, whose phase is 0


@dataclass(frozen=True)
class FedDG(Algorithm):
    """Training images get amplitudes of other sites' images and keep their phases; without the episodic loss.

    Attributes:
        bank_images: of a site, whose amplitudes all sites get, at most.
        low_frequency: share of an image's shorter side; frequencies up to it are sent and mixed; None = all of them.
        exclude_self: mix with other sites' amplitudes alone.
    """

    title: ClassVar[str] = "FedDG"
    source: ClassVar[str] = "Liu et al. 2021, arXiv 2103.06030"
    overlay: ClassVar[str] = "feddg"

    bank_images: int = 100
    low_frequency: float | None = None
    exclude_self: bool = False

    def __post_init__(self) -> None:
        check_bank(self.bank_images, self.low_frequency)
        if type(self.exclude_self) is not bool:
            raise JobError(f"'exclude_self' is {self.exclude_self!r}; write true or false")

    def settings(self) -> Mapping[str, Any]:
        return asdict(self)

    def values(self) -> tuple[AuxiliaryValue, ...]:
        share = self.low_frequency
        most = "" if share is None else f", of frequencies up to {share:g} of the shorter side"
        return (
            AuxiliaryValue(
                AMPLITUDE,
                f"at most {self.bank_images} images: of each colour H × (W / 2 + 1) numbers of 2 bytes{most}",
                BEFORE_TRAINING,
                "through the server to the other sites, without this site's name",
                "Of single training images: brightness, colour, sharpness, texture and black borders, and how alike "
                "an image is to itself when it is shifted. Not where things are: that is the phase, which stays. Yet "
                "an image that somebody has can be recognised by its amplitude, and of images with large empty "
                "borders an amplitude alone may let parts be rebuilt.",
                when=ONCE,
                entries=True,
            ),
        )


class OwnAmplitudes:
    """Amplitudes of some of the site's training images, evenly spread over their list: what the other sites get.

    Args:
        images: the training images.
        most: largest number that is used, 1 or more.
        low_frequency: see :func:`fedmed.systems.algorithms.feddg.kept_frequencies`.

    Raises:
        JobError: an argument outside its range.
        FedMedError: when called, an image whose pixels are not in [0, 1].
    """

    def __init__(self, images: Images, most: int = 100, low_frequency: float | None = None) -> None:
        check_bank(most, low_frequency)
        self.images, self.most, self.low_frequency = images, most, low_frequency

    def __call__(self, before_batch: Callable[[], None] | None = None) -> dict[str, Tensor]:
        """Return ``amplitude``, (n, C, H, W // 2 + 1) float16; ``{}`` without images. ``before_batch`` may raise."""
        images, places, spectra = self.images, spread(len(self.images), self.most).tolist(), []
        for start in range(0, len(places), CHUNK):
            if before_batch is not None:
                before_batch()
            batch = _stacked([plain(images[place]["image"]) for place in places[start : start + CHUNK]])
            if not bool(((batch >= 0) & (batch <= 1)).all()):
                raise FedMedError(
                    "amplitudes are taken of images in [0, 1], before they are normalised, and these go from "
                    f"{float(batch.min()):g} to {float(batch.max()):g}; normalise in the bundle's network"
                )
            spectra.append(half_spectra(batch, self.low_frequency))
        return {AMPLITUDE: torch.cat(spectra)} if spectra else {}


class MixedAmplitudes(Correction):
    """Mixes every training image with the bank (FedDG, Liu et al. 2021; Markert 2022, Eq. 4.15).

    The other sites' amplitudes come once, with the site's first task to train; bank and order are kept with the
    site's state. Without them the site's own are all there is, and images stay as they are where those do not count.

    Args:
        own: of the site; called where the bank is made.
        seed: of the draws of a round.
        exclude_self: mix with other sites' amplitudes alone, as Liu et al. do.
        low_frequency: see :func:`fedmed.systems.algorithms.feddg.kept_frequencies`.
    """

    takes = (OTHERS,)

    def __init__(
        self, own: OwnAmplitudes, seed: int = 0, exclude_self: bool = False, low_frequency: float | None = None
    ) -> None:
        self.site_images, self.seed, self.exclude_self, self.low_frequency = own, seed, exclude_self, low_frequency
        self._bank: Tensor | None = None
        self._mix: AmplitudeMix | None = None

    def begin(self, start: RoundStart) -> None:
        """Before the round's first step.

        Raises:
            FedMedError: amplitudes of another image size, with NaN, or below 0.
        """
        if OTHERS in start.values or self._bank is None:
            self._bank = self._joined(start.values.get(OTHERS, ()))
        if len(self._bank):
            self._mix = AmplitudeMix(self._bank, self.seed, self.low_frequency)

    def change_images(self, images: Tensor) -> Tensor:
        return images if self._mix is None else self._mix(images)

    def state_dict(self) -> dict[str, Any]:
        return {} if self._bank is None else {"bank": self._bank}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._bank = state_dict.get("bank")

    def _joined(self, others: Sequence[Mapping[str, Any]]) -> Tensor:
        """The site's own entries, then those of the others in the order in which they came."""
        if not others:
            rest = "images stay as they are" if self.exclude_self else "images are mixed with this site's own"
            log.warning("no amplitudes of other sites have come; %s", rest)
        local = {} if self.exclude_self else self.site_images()
        parts = [*local.values(), *(_checked(other) for other in others)]
        if strange := [part for part in parts if part.shape[1:] != parts[0].shape[1:]]:
            shapes = " and ".join(str(tuple(part.shape[1:])) for part in (parts[0], strange[0]))
            raise FedMedError(f"amplitudes of other sites are of another image size: {shapes} in one bank")
        return torch.cat(parts) if parts else torch.empty(0, dtype=BANK)


def _stacked(images: Sequence[Tensor]) -> Tensor:
    if strange := [image for image in images if image.shape != images[0].shape]:
        shapes = " and ".join(str(tuple(image.shape)) for image in (images[0], strange[0]))
        raise FedMedError(f"amplitudes can be mixed only of images of one size, and these are {shapes}")
    return torch.stack(list(images))


def _checked(other: Mapping[str, Any]) -> Tensor:
    values = other.get(AMPLITUDE) if isinstance(other, Mapping) else None
    if not isinstance(values, Tensor) or values.dtype != BANK or values.ndim < 4:
        raise FedMedError(f"another site's '{AMPLITUDE}' is not a table of half spectra in float16; same FedMed?")
    if not bool(((values >= 0) & (values < torch.inf)).all()):  # NaN is neither
        raise FedMedError(f"another site's '{AMPLITUDE}' holds NaN, infinity or numbers below 0; it is not mixed")
    return values.detach().cpu()


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
    spectra = torch.fft.rfftn(_real(images), dim=tuple(range(2, images.ndim)))
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
    images, axes, sides = _real(images), tuple(range(2, images.ndim)), images.shape[2:]
    spectra = torch.fft.rfftn(images, dim=axes)
    index = kept_frequencies(sides, low_frequency)
    part = spectra if index is None else spectra[(..., *index)]
    share = strength.to(images).view(-1, *[1] * (images.ndim - 1))
    amplitude, other = part.abs(), amplitudes * (share * math.prod(sides))  # of half precision in that of the images
    nothing = amplitude < LEAST
    # A complex number times a real one keeps its phase; dividing by amplitudes would be several times slower.
    factor = torch.addcdiv(1 - share, other, amplitude.clamp_(min=LEAST)).masked_fill_(nothing, 0)
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
    """Raise a JobError for settings that no bank can have: images of a site that it holds, share of their spectra."""
    if type(images) is not int or images < 1:
        raise JobError(f"'bank_images' is {images!r}; give a number of images, 1 or more")
    check_low_frequency(low_frequency)


def check_low_frequency(share: float | None) -> None:
    """Raise a JobError for a share of the spectrum that is not one."""
    if share is not None and (type(share) not in (int, float) or not 0 < share <= 0.5):
        raise JobError(f"'low_frequency' is {share!r}; give a share of the shorter side, above 0 and at most 0.5")


def _real(images: Tensor) -> Tensor:
    return images if images.dtype in (torch.float32, torch.float64) else images.float()


def _shown(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
