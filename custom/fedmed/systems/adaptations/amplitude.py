"""Images of every site, shown to the model with the amplitudes of the mean of all sites."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from fedmed.data.augment.bands import AMPLITUDES, BANDS
from fedmed.errors import JobError
from fedmed.methods.algorithm import Algorithm
from fedmed.methods.declarations import BEFORE_TRAINING, ONCE, AuxiliaryValue


@dataclass(frozen=True)
class Amplitude(Algorithm):
    """Sites tell how strong the frequencies of their images are; each shows the model its own as strong as the mean.

    They do so whenever they train a model or score it. After HarmoFL, with a factor for each band of frequencies and
    site in place of a spectrum for each image; its weight perturbation is left out.

    Attributes:
        band_strength: 1 = as strong as the mean; less: part of the way there.
    """

    title: ClassVar[str] = "amplitude normalisation"
    source: ClassVar[str] = "FedMed's own, after HarmoFL, arXiv 2112.10775"
    overlay: ClassVar[str] = "amplitude_normalisation"
    own_images: ClassVar[bool] = True
    adaptation_text: ClassVar[str] = "show the model their {images} as bright, sharp and noisy as the mean of all"

    band_strength: float = 1.0

    def __post_init__(self) -> None:
        if type(self.band_strength) not in (int, float) or not 0 < self.band_strength <= 1:
            raise JobError(f"'band_strength' is {self.band_strength!r}; give a number above 0 and at most 1")

    def settings(self) -> Mapping[str, Any]:
        return asdict(self)

    def values(self) -> tuple[AuxiliaryValue, ...]:
        return (
            AuxiliaryValue(
                AMPLITUDES,
                f"{1 + BANDS} numbers for each colour",
                BEFORE_TRAINING,
                "through the server to the other sites, without this site's name",
                "Of the training images together: how bright they are, and how strong coarse and fine structure and "
                "noise are in them.",
                when=ONCE,
            ),
        )
