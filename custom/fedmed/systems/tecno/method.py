"""Temporal stages on the features of a model of single frames (Czempiel et al. 2020, arXiv 2003.10751)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmed.aggregation.sharing import FULL
from fedmed.methods.declarations import EVALUATED, SUPERVISED, Role
from fedmed.methods.supervised_fedavg import SupervisedFedAvg

FEATURES = r"^features\."
START = {"checkpoint": "best_FL_global_model.pt", "checkpoint_tensors": [FEATURES]}


@dataclass(frozen=True)
class TeCNO(SupervisedFedAvg):
    """Sites with labels train temporal stages, and the server averages these alone, by frames.

    The features are those of a model that was trained before. A site gets them once, with its first task, computes
    those of its videos once, and keeps both; they do not travel again.
    """

    name: ClassVar[str] = "tecno"
    title: ClassVar[str] = "temporal stages on frozen features"
    source: ClassVar[str] = "Czempiel et al. 2020, arXiv 2003.10751"
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "surgical_phase_classification", "rounds": 16, "epochs": 1, **START,
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo"]}
    overlays: ClassVar[tuple[str, ...]] = ("temporal", "tecno")
    frozen: ClassVar[str] = "features"

    weighting: str = "samples"

    def roles(self) -> Mapping[str, Role]:
        """Sites with labels, which receive and send the stages; sites that are only scored get the whole model then."""
        labelled = replace(SUPERVISED, least=1, overlays=self.overlays, receives=self.frozen)
        return {"supervised": labelled, "evaluate": replace(EVALUATED, overlays=self.overlays, receives=FULL)}

    def contradictions(self, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if not said.get("checkpoint"):
            missing = "'checkpoint' is missing: name the model of single frames of an earlier run, such as checkpoint:"
            yield "method", f"{missing} {START['checkpoint']}, checkpoint_tensors: ['{FEATURES}']"
        for key in ("sharing", "warm_start"):
            if key in said:
                yield key, f"'{key}': sites share the stages alone, in all rounds; leave it out"

    def card(self) -> str:
        return (
            "Temporal stages that see a whole operation up to the frame, trained at sites with labels and averaged, on "
            "the features of a model of single frames, which stayed as it was."
        )
