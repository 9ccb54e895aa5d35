"""FedDG's mixing of amplitudes (Liu et al., CVPR 2021, arXiv 2103.06030; Markert 2022)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.data.augment.amplitude import AMPLITUDE, check_bank
from fedmed.errors import JobError
from fedmed.methods.algorithms.algorithm import Algorithm
from fedmed.methods.declarations import BEFORE_TRAINING, ONCE, BesideModel


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
