"""SCAFFOLD (Karimireddy et al. 2020, arXiv 1910.06378)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.aggregation.control import DIFFERENCE
from fedmed.methods.algorithms.algorithm import UNIFORM, Algorithm
from fedmed.methods.declarations import WITH_UPDATE, BesideModel
from fedmed.methods.method import MEAN


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """A site's gradients lose what is its own and get what all sites have in common; all sites count the same."""

    title: ClassVar[str] = "SCAFFOLD"
    source: ClassVar[str] = "Karimireddy et al. 2020, arXiv 1910.06378"
    overlay: ClassVar[str] = "scaffold"
    at_server: ClassVar[bool] = True

    def rule(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The plain mean, after which the study's step may act, and that of the control variates."""
        mean = {"path": MEAN, "args": {"weighting": {"path": UNIFORM, "args": {}}}}
        return {"path": "fedmed.aggregation.control.ControlledMean", "args": {"mean": mean}}

    def values(self) -> tuple[BesideModel, ...]:
        """The change of a site's control variate."""
        tells = (
            "How the mean gradient of the site's training images has changed since the round before: as much as an "
            "update tells of them, a second time, and without the noise that the site's settings add to updates."
        )
        return (BesideModel(DIFFERENCE, "a tensor for each of the update", WITH_UPDATE, "to the server", tells),)
