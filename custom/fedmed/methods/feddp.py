"""Federated averaging with private queries of the attention (FedDP, Wang et al., IEEE TMI 2023)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.methods.declarations import Role
from fedmed.methods.private_group import private_roles, said_elsewhere, what_stays
from fedmed.methods.supervised_fedavg import SupervisedFedAvg


@dataclass(frozen=True)
class FedDP(SupervisedFedAvg):
    """Each site has query layers of its own in the encoder's attention; the server averages all other layers.

    Without the original's calibration of the head by how much the sites' heads disagree.

    Attributes:
        weighting: as of :class:`SupervisedFedAvg`; by default all sites count the same.
        group: sharing group of the bundle whose layers stay at each site; ``full``: none.
    """

    title: ClassVar[str] = "FedDP"
    source: ClassVar[str] = "Wang et al. 2023, IEEE Transactions on Medical Imaging"
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "instrument_segmentation", "overlays": ["single_frame"], "rounds": 300, "steps": 100,
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo", "single_frame"], "rounds": 32, "steps": 100}
    stays: ClassVar[str] = "the query layers"

    weighting: str = "uniform"
    group: str = "encoder_q"

    def roles(self) -> Mapping[str, Role]:
        """Sites with labels, and those that are only scored; the group stays at each."""
        return private_roles(self.group)

    def contradictions(self, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """A study that says in another place what stays at the sites."""
        return said_elsewhere(said)

    def card(self) -> str:
        """How the model came about."""
        return (
            f"Each site trained on its own labelled images and kept {self.stays} of the network to itself; the server "
            f"averaged all other layers ({self.title})."
        )

    def dry_run(self) -> tuple[str, ...]:
        """What does not leave."""
        return what_stays(self.group)
