"""FedDG's mixing of amplitudes (Liu et al., CVPR 2021, arXiv 2103.06030; Markert 2022)."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedmed.data.augment.amplitude import BANK, AmplitudeMix, check_bank, half_spectra
from fedmed.data.spread import spread
from fedmed.errors import FedMedError, JobError
from fedmed.methods.algorithm import Algorithm
from fedmed.methods.declarations import BEFORE_TRAINING, ONCE, BesideModel
from fedmed.training.corrections.correction import Correction, Images, RoundStart
from fedmed.training.corrections.own_images import OTHERS
from fedmed.training.trainer import plain

log = logging.getLogger("fedmed.site")
CHUNK = 32  # images whose spectra are computed at once
AMPLITUDE = "amplitude"  # what sites send each other, as a site's settings and the ledger call it


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
        """All of them."""
        names = ("bank_images", "low_frequency", "exclude_self")
        return {name: getattr(self, name) for name in names}

    def values(self) -> tuple[BesideModel, ...]:
        """The bank."""
        most = (
            "" if self.low_frequency is None else f", of frequencies up to {self.low_frequency:g} of the shorter side"
        )
        return (
            BesideModel(
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
        low_frequency: see :func:`fedmed.data.augment.amplitude.kept_frequencies`.

    Raises:
        JobError: an argument outside its range.
        FedMedError: when called, an image whose pixels are not in [0, 1].
    """

    def __init__(self, images: Images, most: int = 100, low_frequency: float | None = None) -> None:
        check_bank(most, low_frequency)
        self.images, self.most, self.low_frequency = images, most, low_frequency

    def __call__(self, before_batch: Callable[[], None] | None = None) -> dict[str, Tensor]:
        """Return ``amplitude``, (n, C, H, W // 2 + 1) float16; ``{}`` without images.

        Args:
            before_batch: called before each batch; may raise to stop.
        """
        images, places = self.images, spread(len(self.images), self.most).tolist()
        spectra = []
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
        low_frequency: see :func:`fedmed.data.augment.amplitude.kept_frequencies`.
    """

    takes = (OTHERS,)

    def __init__(
        self, own: OwnAmplitudes, seed: int = 0, exclude_self: bool = False, low_frequency: float | None = None
    ) -> None:
        self.own, self.seed, self.exclude_self, self.low_frequency = own, seed, exclude_self, low_frequency
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
        """Mixed with the bank."""
        return images if self._mix is None else self._mix(images)

    def state_dict(self) -> dict[str, Any]:
        """The bank."""
        return {} if self._bank is None else {"bank": self._bank}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self._bank = state_dict.get("bank")

    def _joined(self, others: Sequence[Mapping[str, Any]]) -> Tensor:
        """The site's own entries, then those of the others in the order in which they came."""
        if not others:
            rest = "images stay as they are" if self.exclude_self else "images are mixed with this site's own"
            log.warning("no amplitudes of other sites have come; %s", rest)
        own = {} if self.exclude_self else self.own()
        parts = [*own.values(), *(_checked(other) for other in others)]
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
        raise FedMedError(
            f"another site's '{AMPLITUDE}' is not a table of half spectra in float16; is FedMed the same?"
        )
    if not bool(((values >= 0) & (values < torch.inf)).all()):  # NaN is neither
        raise FedMedError(
            f"another site's '{AMPLITUDE}' holds NaN, infinity or numbers below 0; nothing is mixed with it"
        )
    return values.detach().cpu()
