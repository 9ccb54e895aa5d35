"""FedProx (Li et al. 2020, arXiv 1812.06127)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedmed.in_range import in_range
from fedmed.methods.algorithms.algorithm import Algorithm


@dataclass(frozen=True)
class FedProx(Algorithm):
    """A site's weights are drawn back to those that it received.

    Attributes:
        mu: strength, 0 or more.
    """

    title: ClassVar[str] = "FedProx"
    source: ClassVar[str] = "Li et al. 2020, arXiv 1812.06127"
    overlay: ClassVar[str] = "fedprox"

    mu: float = 0.01

    def __post_init__(self) -> None:
        in_range("mu", self.mu, least=0)

    def settings(self) -> Mapping[str, float]:
        """mu."""
        return {"mu": self.mu}
