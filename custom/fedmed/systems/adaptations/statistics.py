"""Statistics of normalisation layers from a site's own images, wherever it scores a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.errors import JobError
from fedmed.methods.algorithm import Adaptation


@dataclass(frozen=True)
class Statistics(Adaptation):
    """A site without labels scores each model with BatchNorm's mean and variance of its own images.

    Nothing leaves a site for it, and nothing is trained. Adaptive batch normalisation (AdaBN), Li et al. 2018.

    Attributes:
        prior: how many images the statistics that came with the model count for beside the site's own (Schneider et al.
            2020, Eq. 3): 0 = the site's alone.
        dead_zone: mean distance of the layers, in deviations, up to which a site does not adapt.
        judged: whether a site leaves it too where the model would then call one class alone, or be clearly less sure.
    """

    title: ClassVar[str] = "own statistics of normalisation"
    source: ClassVar[str] = "Li et al. 2018, arXiv 1603.04779; Schneider et al. 2020, arXiv 2006.16971"
    overlay: ClassVar[str] = "own_statistics"
    adaptation_text: ClassVar[str] = "normalise the model's features by the statistics of their own {images}"

    prior: float = 16
    dead_zone: float = 0.25
    judged: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.prior) not in (int, float) or not 0 <= self.prior <= 1e6:
            raise JobError(f"'prior' is {self.prior!r}; give how many images the model's statistics count for, from 0")
        if type(self.dead_zone) not in (int, float) or not 0 <= self.dead_zone <= 100:
            raise JobError(f"'dead_zone' is {self.dead_zone!r}; give a number of deviations, 0 to 100")
        if type(self.judged) is not bool:
            raise JobError(f"'judged' is {self.judged!r}; write true or false")

    def settings(self) -> Mapping[str, Any]:
        return {f"statistics_{name}": getattr(self, name) for name in ("prior", "dead_zone", "judged")}
