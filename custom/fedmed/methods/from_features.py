"""Full supervision of a network for frames whose features were trained before."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.methods.supervised_fedavg import SupervisedFedAvg


@dataclass(frozen=True)
class FromFeatures(SupervisedFedAvg):
    """Supervised training that begins with the features of another job; the classifier begins anew.

    The study names the file and what to take of it: ``checkpoint`` and ``checkpoint_tensors``.
    """

    title: ClassVar[str] = "full supervision of trained features"
    source: ClassVar[str] = "Kassem et al. 2023, IEEE Transactions on Medical Imaging 42(7), arXiv 2203.07345"
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "surgical_phase_classification", "rounds": 100, "epochs": 1, "min_rounds": 6, "patience": 3,
        "checkpoint": "FL_global_model.pt", "checkpoint_tensors": [r"^features\."],
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo"], "rounds": 50, "patience": 10}

    weighting: str = "samples"

    def card(self) -> str:
        """How the model came about."""
        return "All layers were trained with labels, from features that had been trained without."
