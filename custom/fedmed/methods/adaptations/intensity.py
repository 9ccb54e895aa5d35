"""Images of sites without labels, shown to the model nearer to the brightness of those with labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedmed.data.augment.intensities import INTENSITIES
from fedmed.errors import JobError
from fedmed.methods.algorithms.algorithm import Algorithm
from fedmed.methods.declarations import BEFORE_TRAINING, ONCE, BesideModel


@dataclass(frozen=True)
class Intensity(Algorithm):
    """Sites with labels tell how bright their images are; a site without shows its own ones half-way so.

    It does so whenever it trains a model or scores it. Sites with labels train as ever. Ours; in the spirit of
    amplitude normalisation (HarmoFL, AAAI 2022), with one number, a gamma, in place of a spectrum.

    Attributes:
        scored_sites: whether sites that never train adapt too, to the images that they score, without their labels.
    """

    title: ClassVar[str] = "gamma matching"
    source: ClassVar[str] = "FedMed's own, after HarmoFL, arXiv 2112.10775"
    overlay: ClassVar[str] = "gamma_matching"
    beside_learning: ClassVar[str] = "show the model their {images} nearer to the brightness of the others'"
    overlays: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "supervised": ("own_intensities",),
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
        """The histogram."""
        return (
            BesideModel(
                INTENSITIES,
                "100 numbers",
                BEFORE_TRAINING,
                "of sites with labels, through the server to those without, without this site's name; the mean "
                "of all, where two or more do, stays with the run and goes into bundles that are exported of it",
                "A histogram of the training images: how many voxels, or pixels, are how bright.",
                when=ONCE,
                sent_by="supervised",
                given_to=("unsupervised", *(["evaluate"] if self.scored_sites else [])),
            ),
        )
