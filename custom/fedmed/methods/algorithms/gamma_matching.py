"""Training images as bright as those of other sites."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.data.augment.intensities import INTENSITIES
from fedmed.in_range import in_range
from fedmed.methods.algorithms.algorithm import Algorithm
from fedmed.methods.declarations import BEFORE_TRAINING, ONCE, BesideModel


@dataclass(frozen=True)
class GammaMatching(Algorithm):
    """Sites tell one another how bright their images are, and train on some of their own as bright as those of others.

    Ours; in the spirit of amplitude normalisation (HarmoFL, AAAI 2022), with one number, a gamma, in place of a
    spectrum, and with the labels of the site that trains.

    Attributes:
        matched_share: of the training images of a batch, above 0, below 1, that are made as bright as another site's.
    """

    title: ClassVar[str] = "gamma matching"
    source: ClassVar[str] = "FedMed's own, after HarmoFL, arXiv 2112.10775"
    overlay: ClassVar[str] = "gamma_matching"

    matched_share: float = 0.5

    def __post_init__(self) -> None:
        in_range("matched_share", self.matched_share, above=0, below=1)

    def settings(self) -> Mapping[str, Any]:
        """How many images are changed."""
        return {"matched_share": self.matched_share}

    def values(self) -> tuple[BesideModel, ...]:
        """The histogram."""
        return (
            BesideModel(
                INTENSITIES,
                "100 numbers",
                BEFORE_TRAINING,
                "through the server to the other sites, without this site's name",
                "A histogram of the training images: how many voxels, or pixels, are how bright.",
                when=ONCE,
            ),
        )
