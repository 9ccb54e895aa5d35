"""Pre-training of features for frames by cycles between clips at all sites (Kassem et al. 2023, FedTCC)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmed.methods.declarations import Role, Scalar
from fedmed.methods.fedcy import CYCLES, FedCy

CONTRAST = "train_label_contrast"


@dataclass(frozen=True)
class FedTCC(FedCy):
    """Every site trains the features by cycles between clips of its videos, whatever labels it has.

    The classifier stays as it was made, and sites with labels train it afterwards from these features: a second job,
    of :class:`fedmed.methods.from_features.FromFeatures`.
    """

    title: ClassVar[str] = "FedTCC"
    source: ClassVar[str] = "Dwibedi et al. 2019, arXiv 1904.07846, as in Kassem et al. 2023, arXiv 2203.07345"
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "surgical_phase_classification", "rounds": 30, "epochs": 1, "select": "last", "evaluate": False,
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo"]}

    def roles(self) -> Mapping[str, Role]:
        """Sites with videos."""
        return {"unsupervised": replace(CYCLES, least=1)}

    def scalars(self) -> tuple[Scalar, ...]:
        """As there; nobody tells features apart by labels."""
        return tuple(scalar for scalar in super().scalars() if scalar.name != CONTRAST)

    def next_methods(self) -> Mapping[str, str]:
        """The model to use."""
        return {"from_features": "trains the whole network with labels, from these features: that is the model to use"}

    def card(self) -> str:
        """How the model came about."""
        return "Pre-training without labels: each site learned to find a frame of a clip again by way of another clip."

    def dry_run(self) -> tuple[str, ...]:
        """What the numbers of frames tell, and that labels are not used."""
        return (
            super().dry_run()[0],
            "Labels are not used; what extracts features is sent, and no classifier.",
        )
