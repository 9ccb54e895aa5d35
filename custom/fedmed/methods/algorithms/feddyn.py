"""FedDyn (Acar et al. 2021, arXiv 2111.04263)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.errors import JobError
from fedmed.in_range import in_range
from fedmed.methods.algorithms.algorithm import Algorithm
from fedmed.methods.method import MEAN


@dataclass(frozen=True)
class FedDyn(Algorithm):
    """Sites and server keep a state by which the sites' minima meet in that of all of them; all sites count the same.

    The study's ``server_step``, an optimizer of the server, acts on what FedDyn makes of the round.

    Attributes:
        alpha: strength, above 0, of the sites' terms and the server's.
        delayed_h: see :class:`fedmed.aggregation.dynamic.DynamicStep`.
    """

    title: ClassVar[str] = "FedDyn"
    source: ClassVar[str] = "Acar et al. 2021, arXiv 2111.04263"
    overlay: ClassVar[str] = "feddyn"
    at_server: ClassVar[bool] = True

    alpha: float = 0.01
    delayed_h: bool = False

    def __post_init__(self) -> None:
        in_range("alpha", self.alpha, above=0)
        if type(self.delayed_h) is not bool:
            raise JobError(f"'delayed_h' is {self.delayed_h!r}; write true or false")

    def settings(self) -> Mapping[str, float]:
        """alpha."""
        return {"alpha": self.alpha}

    def rule(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The plain mean, FedDyn's step, then that of the study."""
        step = {"by": "fedmed.aggregation.dynamic.DynamicStep", "alpha": self.alpha, "delayed_h": self.delayed_h}
        step["then"] = args.get("step")
        return {"path": MEAN, "args": {**args, "weighting": "uniform", "step": step}}
