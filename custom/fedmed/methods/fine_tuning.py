"""Fine-tuning of a pre-trained encoder with few labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.methods.linear import START, Linear


@dataclass(frozen=True)
class FineTuning(Linear):
    """All weights are trained with labels, from a pre-trained encoder; the server averages by images."""

    title: ClassVar[str] = "fine-tuning of a pre-trained encoder"
    source: ClassVar[str] = "Dong and Voiculescu 2021, arXiv 2109.07504"
    example: ClassVar[Mapping[str, Any]] = {"bundle": "cxr_classification", "rounds": 10, "epochs": 5, **START}
    overlay: ClassVar[str] = "finetune"

    def card(self) -> str:
        """How the model came about."""
        return "All layers were trained with labels, starting from a pre-trained encoder."
