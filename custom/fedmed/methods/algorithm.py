"""Algorithms and adaptations: what a study adds to a method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from fedmed.errors import JobError
from fedmed.methods.declarations import BEFORE_TRAINING, ONCE, AuxiliaryValue
from fedmed.methods.method import MEAN
from fedmed.training.corrections.correction import Correction

UNIFORM = "fedmed.aggregation.weighted_mean.UniformWeighting"
# Keys of a study, and arguments of its rule, that make another mean than that in which all sites count the same.
NOT_PLAIN = ("user_weights", "normalise", "clip_norm")
NOT_PLAIN_RULE = ("weighting", "rule", "trim", *NOT_PLAIN)
PLAIN = {"weighting": "uniform", "rule": "mean"}  # which may be said
LOOKS = {"unsupervised": "training_images", "evaluate": "scored_images"}  # role -> overlay: at which images


@dataclass(frozen=True)
class Algorithm:
    """An addition to a method. A study names it by its file, as ``algorithm``; its fields are the arguments.

    Attributes:
        title: its name for a person.
        source: the paper.
        overlay: that sites which train get last, one of those that every bundle can use; None = they train as ever.
        at_server: whether the server has a part, which needs a mean in which all sites count the same.
        own_images, adaptation_text: see :class:`Method`.
    """

    title: ClassVar[str]
    source: ClassVar[str]
    overlay: ClassVar[str | None] = None
    at_server: ClassVar[bool] = False
    own_images: ClassVar[bool] = False
    adaptation_text: ClassVar[str] = ""

    def overlays_of(self, role: str) -> tuple[str, ...]:
        """The overlays that sites of a role get, after the method's."""
        return (self.overlay,) if self.overlay and role != "evaluate" else ()

    def settings(self) -> Mapping[str, Any]:
        """Settings of the overlay -> values."""
        return {}

    def corrections(self, network: nn.Module) -> Sequence[Correction]:
        """Corrections of a site's training that need no overlay, made anew for each task; see :class:`Method`."""
        return ()

    def private(self) -> str | None:
        """Sharing group whose layers stay at the sites, in place of the study's ``sharing``; None = the study's."""
        return None

    def rule(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The server's rule, ``path`` and ``args``, of the arguments of the mean that method and study ask for."""
        return {"path": MEAN, "args": dict(args)}

    def amended(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        """The server's rule, of the one that the method and the study ask for.

        Raises:
            JobError: that is not a mean which the algorithm's part at the server can act on.
        """
        if not self.at_server:
            return dict(rule)
        weighting = rule["args"].get("weighting")
        if rule["path"] != MEAN or isinstance(weighting, Mapping):
            what = f"'{rule['path']}'" if rule["path"] != MEAN else f"one weighted by {weighting}"
            raise JobError(
                f"{self.title} needs the plain mean of the sites at the server, and the rule is {what}; use "
                "another method or rule, or leave 'algorithm' out"
            )
        return self.rule(rule["args"])

    def values(self) -> tuple[AuxiliaryValue, ...]:
        """Values that leave a site beside the model, on top of the method's."""
        return ()


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
        """Overlays that tell, at sites with labels; that adapt, at those of :attr:`adapting`."""
        if role in self.adapting:
            return (LOOKS[role], str(self.overlay))
        return (self.telling,) if role == "supervised" and self.telling else ()

    def sent_once(self, name: str, shape: str, tells: str) -> tuple[AuxiliaryValue, ...]:
        """The value that sites with labels tell once, see :class:`AuxiliaryValue`."""
        direction = (
            "of sites with labels, through the server to those without, without this site's name; the mean "
            "of all, where two or more do, stays with the run and goes into bundles that are exported of it"
        )
        value = AuxiliaryValue(
            name, shape, BEFORE_TRAINING, direction, tells, when=ONCE, sent_by="supervised", given_to=self.adapting
        )
        return (value,)
