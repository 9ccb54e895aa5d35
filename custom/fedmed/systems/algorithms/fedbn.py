"""FedBN (Li et al. 2021, arXiv 2102.07623)."""

from dataclasses import dataclass
from typing import ClassVar

from fedmed.aggregation.sharing import NORM
from fedmed.methods.algorithm import Algorithm


@dataclass(frozen=True)
class FedBN(Algorithm):
    """Normalisation layers stay at the sites, with their statistics where they have some."""

    title: ClassVar[str] = "FedBN"
    source: ClassVar[str] = "Li et al. 2021, arXiv 2102.07623"

    def private(self) -> str:
        return NORM
