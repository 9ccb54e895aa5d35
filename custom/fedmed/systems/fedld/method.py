"""Federated averaging along the directions that sites have in common (FedLD, Zeng et al., MICCAI 2024)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmed.in_range import in_range
from fedmed.methods.declarations import EVALUATED, LOSS, SUPERVISED, Role, Scalar
from fedmed.methods.method import Method


@dataclass(frozen=True)
class FedLD(Method):
    """Sites with labels learn not to be too sure; the server follows the strongest common directions of each layer.

    Settings of the loss are the bundle's, overlay ``fedld``.

    Attributes:
        share: of the sites, above 0, at most 1: so many directions are kept, rounded down, one at least.
    """

    name: ClassVar[str] = "fedld"
    title: ClassVar[str] = "FedLD"
    source: ClassVar[str] = "Zeng et al. 2024, MICCAI, arXiv 2408.12300"
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "instrument_segmentation", "overlays": ["single_frame"], "rounds": 300, "steps": 100,
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo", "single_frame"], "rounds": 32, "steps": 100}

    share: float = 0.8

    def __post_init__(self) -> None:
        in_range("share", self.share, above=0, most=1)

    def roles(self) -> Mapping[str, Role]:
        return {"supervised": replace(SUPERVISED, least=1, overlays=("fedld",)), "evaluate": EVALUATED}

    def rule(self) -> dict[str, Any]:
        return {"path": "fedmed.systems.fedld.server.DirectionsMean", "args": {"share": self.share}}

    def contradictions(self, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if "server_step" in said and "rule" not in said:
            yield (
                "server_step",
                f"'server_step': {self.title} makes the next model by a step of its own, along common directions, and "
                "not of a mean that an optimizer could act on; leave it out, or use another method",
            )

    def scalars(self) -> tuple[Scalar, ...]:
        return (LOSS,)

    def card(self) -> str:
        return (
            "Each site trained on its own labelled images with a term against too sure predictions, and of what sites "
            "learned the server kept, layer by layer, the directions that most have in common (FedLD, Zeng et al. "
            "2024)."
        )

    def dry_run(self) -> tuple[str, ...]:
        return ("All sites count the same, however many images they have.",)
