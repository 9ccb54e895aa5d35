"""Linear classification protocol: one layer on the features of a pre-trained encoder."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmed.methods.declarations import EVALUATED, SUPERVISED, Role
from fedmed.methods.supervised_fedavg import SupervisedFedAvg

START = {"checkpoint": "FL_global_model.pt", "checkpoint_tensors": [r"^encoder\."]}


@dataclass(frozen=True)
class Linear(SupervisedFedAvg):
    """The encoder stays as it was pre-trained; sites fit a linear classifier, and the server averages it by images."""

    title: ClassVar[str] = "linear classification of a pre-trained encoder"
    source: ClassVar[str] = "He et al. 2020, arXiv 1911.05722, section 4.1"
    example: ClassVar[Mapping[str, Any]] = {"bundle": "cxr_classification", "rounds": 2, "epochs": 10, **START}
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["small"]}
    overlay: ClassVar[str] = "linear"

    weighting: str = "samples"

    def roles(self) -> Mapping[str, Role]:
        """As supervised averaging, with the overlay that makes it this method."""
        labelled = replace(SUPERVISED, least=1, overlays=(self.overlay,))
        return {"supervised": labelled, "evaluate": replace(EVALUATED, overlays=(self.overlay,))}

    def card(self) -> str:
        """How the model came about."""
        return "A linear classifier on the features of a pre-trained encoder, which stayed as it was."
