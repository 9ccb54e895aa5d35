"""Federated averaging of sites with labels (McMahan et al. 2017, arXiv 1602.05629)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmed.methods.declarations import EVALUATED, LOSS, SUPERVISED, Role, Scalar
from fedmed.methods.method import MEAN, Method


@dataclass(frozen=True)
class SupervisedFedAvg(Method):
    """Every site trains on its own labelled images; the server takes the weighted mean of their differences.

    Attributes:
        weighting: what a site counts by: ``iterations``, its steps; ``samples``, its images, as in the paper; or
            ``uniform``.
    """

    name: ClassVar[str] = "supervised_fedavg"
    title: ClassVar[str] = "supervised federated averaging"
    source: ClassVar[str] = "McMahan et al. 2017, arXiv 1602.05629"
    example: ClassVar[Mapping[str, Any]] = {"bundle": "covid_ct_segmentation", "rounds": 50, "steps": 400}
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo"], "rounds": 14, "steps": 30}

    weighting: str = "iterations"

    def roles(self) -> Mapping[str, Role]:
        return {"supervised": replace(SUPERVISED, least=1), "evaluate": EVALUATED}

    def rule(self) -> dict[str, Any]:
        return {"path": MEAN, "args": {"weighting": self.weighting}}

    def scalars(self) -> tuple[Scalar, ...]:
        return (LOSS,)

    def card(self) -> str:
        return "Each site trained on its own labelled images, and the server averaged what they learned."
