"""Images of sites without labels, shown to the model in the colours of those with labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedmed.data.augment.colours import COLOURS
from fedmed.errors import JobError
from fedmed.methods.algorithms.algorithm import Algorithm
from fedmed.methods.declarations import BEFORE_TRAINING, ONCE, BesideModel


@dataclass(frozen=True)
class Colour(Algorithm):
    """Sites with labels tell mean and deviation of their colours; a site without shows its own images so.

    It does so whenever it trains a model or scores it, if its colours are others' than theirs. Sites with labels train
    as ever. Colour transfer of Reinhard et al. 2001, with one transfer for all images of a site.

    Attributes:
        scored_sites: whether sites that never train adapt too, to the images that they score, without their labels.
    """

    title: ClassVar[str] = "colour matching"
    source: ClassVar[str] = "Reinhard et al. 2001, IEEE Computer Graphics and Applications 21(5)"
    overlay: ClassVar[str] = "colour_matching"
    beside_learning: ClassVar[str] = "show the model their {images} in the colours of the others'"
    overlays: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "supervised": ("own_colours",),
        "unsupervised": ("training_images", overlay),
        "evaluate": ("scored_images", overlay),
    }

    scored_sites: bool = True

    def __post_init__(self) -> None:
        if type(self.scored_sites) is not bool:
            raise JobError(f"'scored_sites' is {self.scored_sites!r}; write true or false")

    def overlays_of(self, role: str) -> tuple[str, ...]:
        """One that tells, and one that matches."""
        return self.overlays.get(role, ()) if role != "evaluate" or self.scored_sites else ()

    def values(self) -> tuple[BesideModel, ...]:
        """The colours."""
        return (
            BesideModel(
                COLOURS,
                "9 numbers",
                BEFORE_TRAINING,
                "of sites with labels, through the server to those without, without this site's name; the mean "
                "of all, where two or more do, stays with the run and goes into bundles that are exported of it",
                "The colours of the training images together: mean, deviation, and how much they differ from image to "
                "image.",
                when=ONCE,
                sent_by="supervised",
                given_to=("unsupervised", *(["evaluate"] if self.scored_sites else [])),
            ),
        )
