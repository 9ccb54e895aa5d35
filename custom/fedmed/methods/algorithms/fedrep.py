"""FedRep (Collins et al. 2021, arXiv 2102.07078)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedmed.in_range import in_range
from fedmed.methods.algorithms.algorithm import Algorithm


@dataclass(frozen=True)
class FedRep(Algorithm):
    """Each site has a head of its own on a representation that all share; a round trains one, then the other.

    Attributes:
        head_share: the head's part of a round's steps, above 0 and below 1; with half of ``epochs: 2`` each part
            has an epoch.
        group: sharing group of the bundle whose layers are the head.
    """

    title: ClassVar[str] = "FedRep"
    source: ClassVar[str] = "Collins et al. 2021, arXiv 2102.07078"
    overlay: ClassVar[str] = "fedrep"

    head_share: float = 0.5
    group: str = "head"

    def __post_init__(self) -> None:
        in_range("head_share", self.head_share, above=0, below=1)

    def settings(self) -> Mapping[str, float]:
        """head_share."""
        return {"head_share": self.head_share}

    def private(self) -> str:
        """The head."""
        return self.group
