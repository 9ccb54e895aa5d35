"""FedProx (Li et al. 2020, arXiv 1812.06127)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

from fedmed.in_range import in_range
from fedmed.methods.algorithm import Algorithm
from fedmed.training.corrections.correction import Correction, Parameters, RoundStart, add_pull


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
        return asdict(self)


class ProximalTerm(Correction):
    """Adds ``μ/2 ‖ω - ω_t‖²`` to the loss (Li et al. 2020, arXiv 1812.06127, Eq. 2); ω_t is what the site received.

    Args:
        mu: μ, 0 or more; 0 changes no bit.

    Raises:
        JobError: μ is not such a number.
    """

    def __init__(self, mu: float) -> None:
        self.mu = in_range("mu", mu, least=0)

    def begin(self, start: RoundStart) -> None:
        self._received = {name: tensor for name, tensor in start.received.items() if name in start.parameters}

    def before_step(self, parameters: Parameters) -> None:
        """∇H + μ (ω - ω_t)."""
        for name, received in self._received.items():
            if self.mu and (gradient := parameters[name].grad) is not None:
                add_pull(gradient, parameters[name], received, self.mu)
