"""Federated averaging with private heads and aligned encoders (FedAS, Yang, Huang, Ye, CVPR 2024)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.in_range import in_range
from fedmed.methods.declarations import LOSS, WITH_UPDATE, AuxiliaryValue, Role, Scalar
from fedmed.methods.method import MEAN, Method, private_roles, said_elsewhere, what_stays

TRACE = "fim_trace"  # the trace of a site's Fisher information, as it is sent
TRACE_TELLS = (
    "How far the site's training images and labels would still move the model, the sum of its squared gradients over "
    "them: it grows with the number of images and with how poorly the model fits them, and tells nothing of one image."
)


@dataclass(frozen=True)
class FedAS(Method):
    """Each site has a head of its own; what it receives is first drawn to the features that it had of each class.

    The server weighs sites by the trace of the Fisher information of what they trained. Settings of the alignment are
    the bundle's, overlay ``fedas``. The first round of a site has nothing to align with.

    Attributes:
        group: sharing group of the bundle whose layers are the head.
        most: largest trace that is taken; an update with a larger one is refused.
    """

    name: ClassVar[str] = "fedas"
    title: ClassVar[str] = "FedAS"
    source: ClassVar[str] = "Yang, Huang, Ye 2024, CVPR"
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "instrument_segmentation", "overlays": ["single_frame"], "rounds": 300, "steps": 100,
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo", "single_frame"], "rounds": 32, "steps": 100}

    group: str = "head"
    most: float = 1e9

    def __post_init__(self) -> None:
        in_range("most", self.most, above=0, most=1e12)

    def roles(self) -> Mapping[str, Role]:
        return private_roles(self.group, ("fedas",))

    def values(self) -> tuple[AuxiliaryValue, ...]:
        return (AuxiliaryValue(TRACE, "one number", WITH_UPDATE, "to the server", TRACE_TELLS),)

    def rule(self) -> dict[str, Any]:
        weighting = {"by": "fedmed.aggregation.reported.ReportedWeighting", "name": TRACE, "most": self.most}
        return {"path": MEAN, "args": {"weighting": weighting}}

    def contradictions(self, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        return said_elsewhere(said)

    def scalars(self) -> tuple[Scalar, ...]:
        return (LOSS,)

    def card(self) -> str:
        return (
            "Each site trained on its own labelled images with a last layer of its own; the other layers were first "
            "aligned with what the site had, and averaged by how much each site's images still moved them (FedAS, Yang "
            "et al. 2024)."
        )

    def dry_run(self) -> tuple[str, ...]:
        return (
            *what_stays(self.group),
            f"If one site does not allow '{TRACE}' to leave, the round is weighed by numbers of images.",
        )
