"""Images of sites without labels, shown to the model in the colours of those with labels."""

from dataclasses import dataclass
from typing import ClassVar

from fedmed.data.augment.colours import COLOURS
from fedmed.methods.algorithm import Adaptation
from fedmed.methods.declarations import AuxiliaryValue


@dataclass(frozen=True)
class Colour(Adaptation):
    """Sites with labels tell mean and deviation of their colours; a site without shows its own images so.

    It does so whenever it trains a model or scores it, if its colours are others' than theirs. Sites with labels train
    as ever. Colour transfer of Reinhard et al. 2001, with one transfer for all images of a site.
    """

    title: ClassVar[str] = "colour matching"
    source: ClassVar[str] = "Reinhard et al. 2001, IEEE Computer Graphics and Applications 21(5)"
    overlay: ClassVar[str] = "colour_matching"
    adaptation_text: ClassVar[str] = "show the model their {images} in the colours of the others'"
    telling: ClassVar[str] = "own_colours"

    def values(self) -> tuple[AuxiliaryValue, ...]:
        tells = (
            "The colours of the training images together: mean, deviation, and how much they differ from image to "
            "image."
        )
        return self.sent_once(COLOURS, "9 numbers", tells)
