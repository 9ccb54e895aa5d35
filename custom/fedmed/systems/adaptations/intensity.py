"""Images of sites without labels, shown to the model nearer to the brightness of those with labels."""

from dataclasses import dataclass
from typing import ClassVar

from fedmed.data.augment.intensities import INTENSITIES
from fedmed.methods.algorithm import Adaptation
from fedmed.methods.declarations import AuxiliaryValue


@dataclass(frozen=True)
class Intensity(Adaptation):
    """Sites with labels tell how bright their images are; a site without shows its own ones half-way so.

    It does so whenever it trains a model or scores it. Sites with labels train as ever. Ours; in the spirit of
    amplitude normalisation (HarmoFL, AAAI 2022), with one number, a gamma, in place of a spectrum.
    """

    title: ClassVar[str] = "gamma matching"
    source: ClassVar[str] = "FedMed's own, after HarmoFL, arXiv 2112.10775"
    overlay: ClassVar[str] = "gamma_matching"
    adaptation_text: ClassVar[str] = "show the model their {images} nearer to the brightness of the others'"
    telling: ClassVar[str] = "own_intensities"

    def values(self) -> tuple[AuxiliaryValue, ...]:
        tells = "A histogram of the training images: how many voxels, or pixels, are how bright."
        return self.sent_once(INTENSITIES, "100 numbers", tells)
