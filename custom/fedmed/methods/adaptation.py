"""What adaptations have in common in which sites without labels look at their own images."""

from dataclasses import dataclass
from typing import ClassVar

from fedmed.errors import JobError
from fedmed.methods.algorithm import Algorithm
from fedmed.methods.declarations import BEFORE_TRAINING, ONCE, BesideModel

LOOKS = {"unsupervised": "training_images", "evaluate": "scored_images"}  # role -> overlay: at which images


@dataclass(frozen=True)
class Adaptation(Algorithm):
    """Base: sites without labels fit a model, or their images, to one another; sites with labels train as ever.

    Attributes:
        telling: overlay of sites with labels, which tell the others something; None = nobody tells anything.
        scored_sites: whether sites that never train adapt too, to the images that they score, without their labels.
    """

    telling: ClassVar[str | None] = None

    scored_sites: bool = True

    def __post_init__(self) -> None:
        if type(self.scored_sites) is not bool:
            raise JobError(f"'scored_sites' is {self.scored_sites!r}; write true or false")

    @property
    def adapting(self) -> tuple[str, ...]:
        """Roles whose sites adapt."""
        return tuple(LOOKS) if self.scored_sites else ("unsupervised",)

    def overlays_of(self, role: str) -> tuple[str, ...]:
        """What tells, at sites with labels; what adapts, at those of :attr:`adapting`."""
        if role in self.adapting:
            return (LOOKS[role], str(self.overlay))
        return (self.telling,) if role == "supervised" and self.telling else ()

    def told(self, name: str, shape: str, tells: str) -> tuple[BesideModel, ...]:
        """The value that sites with labels tell once, see :class:`BesideModel`."""
        direction = (
            "of sites with labels, through the server to those without, without this site's name; the mean "
            "of all, where two or more do, stays with the run and goes into bundles that are exported of it"
        )
        to = self.adapting
        made = BesideModel(name, shape, BEFORE_TRAINING, direction, tells, when=ONCE, sent_by="supervised", given_to=to)
        return (made,)
