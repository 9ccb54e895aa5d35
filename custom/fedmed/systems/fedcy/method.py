"""FedCy (Kassem et al. 2022), and its pre-training without any labels."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmed.methods.declarations import EVALUATED, LOSS, SUPERVISED, UNLABELLED, Role, Scalar
from fedmed.methods.guard import Guard
from fedmed.methods.labels_first import labels_first, small_labels_first
from fedmed.methods.method import MEAN, Method
from fedmed.methods.supervised_fedavg import SupervisedFedAvg
from fedmed.systems.fedcy.server import SPREAD, FeatureGuard

HEAD = "head"  # sharing group of a bundle that keeps its classifier
BACK_TELLS = (
    "Frames come back by way of another clip to their own place or next to it. Only what lies above the same share of "
    "frames in a random order says that the features follow time."
)
VARIANCE_TELLS = (
    "The variance of the place to which a frame comes back has a floor, 1e-6: without it the loss at sites without "
    "labels would not be bounded below. That loss may be negative, and cannot be compared with that of a labelled site."
)
CYCLES = replace(
    UNLABELLED,
    overlays=("cycle",),
    needs="This site has videos without labels: its datalist needs 'unlabeled'; lists with labels serve too.",
    sends=HEAD,
    silent=(("learning_rate", 0.0), ("statistics_momentum", 0.0)),
)
CONTRAST = "train_label_contrast"


@dataclass(frozen=True)
class FedCy(Method):
    """Sites with labels train features and classifier; sites without train the features by cycles between clips.

    The server weighs sites by the frames that they processed in the round. The classifier comes from labelled sites
    alone: of one it is taken as it is, of several (ours) it is their mean. Settings of the losses are the bundle's,
    overlays ``guided`` and ``cycle``.
    """

    name: ClassVar[str] = "fedcy"
    title: ClassVar[str] = "FedCy"
    source: ClassVar[str] = "Kassem et al. 2023, IEEE Transactions on Medical Imaging 42(7), arXiv 2203.07345"
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "surgical_phase_classification", "rounds": 100, "epochs": 1, "evaluate_first": True,
        **labels_first(50),
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo"], **small_labels_first(30, 50, contrast_weight=1.0)}

    def roles(self) -> Mapping[str, Role]:
        """Sites with labels; sites without, which receive the classifier and do not send it; those only scored."""
        guided = replace(SUPERVISED, overlays=("guided",), least=1)
        return {"supervised": guided, "unsupervised": CYCLES, "evaluate": EVALUATED}

    def rule(self) -> dict[str, Any]:
        """The mean weighted by frames, Eq. 8, of who sends a tensor."""
        return {"path": MEAN, "args": {"weighting": "samples"}}

    def guards(self) -> Mapping[str, Guard]:
        return {"features": FeatureGuard()}

    def scalars(self) -> tuple[Scalar, ...]:
        return (
            LOSS,
            Scalar("train_cycle_back", "frames that come back", "share", "higher", BACK_TELLS),
            Scalar("train_cycle_chance", "the same of frames in a random order", "share"),
            Scalar("train_cycle_error", "squared error of the way back", better="lower"),
            Scalar("train_min_variance", "smallest variance of a way", tells=VARIANCE_TELLS),
            Scalar(CONTRAST, "contrast by labels", "nats", "lower"),
            Scalar(SPREAD, "spread of features"),
        )

    def report_sections(self) -> tuple[str, ...]:
        return ("fedmed.systems.fedcy.report.SentPartsSection",)

    def card(self) -> str:
        return (
            "Sites without labels learned to find each frame of a clip again by way of another clip; the classifier "
            "comes from labelled sites alone, and features are averaged by frames (Kassem et al. 2023)."
        )

    def dry_run(self) -> tuple[str, ...]:
        return (
            "How many frames a round processed leaves with each update: it tells how long its videos are in all.",
            "A site without labels sends what extracts features, and not the classifier.",
        )


@dataclass(frozen=True)
class FedTCC(FedCy):
    """Every site trains the features by cycles between clips of its videos, whatever labels it has.

    The classifier stays as it was made, and sites with labels train it afterwards from these features: a second job,
    of :class:`fedmed.systems.fedcy.method.FromFeatures`.
    """

    name: ClassVar[str] = "fedtcc"
    title: ClassVar[str] = "FedTCC"
    source: ClassVar[str] = "Dwibedi et al. 2019, arXiv 1904.07846, as in Kassem et al. 2023, arXiv 2203.07345"
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "surgical_phase_classification", "rounds": 30, "epochs": 1, "select": "last", "evaluate": False,
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo"]}

    def roles(self) -> Mapping[str, Role]:
        return {"unsupervised": replace(CYCLES, least=1)}

    def scalars(self) -> tuple[Scalar, ...]:
        """As there; nobody tells features apart by labels."""
        return tuple(scalar for scalar in super().scalars() if scalar.name != CONTRAST)

    def next_methods(self) -> Mapping[str, str]:
        return {"from_features": "trains the whole network with labels, from these features: that is the model to use"}

    def card(self) -> str:
        return "Pre-training without labels: each site learned to find a frame of a clip again by way of another clip."

    def dry_run(self) -> tuple[str, ...]:
        return (super().dry_run()[0], "Labels are not used; what extracts features is sent, and no classifier.")


@dataclass(frozen=True)
class FromFeatures(SupervisedFedAvg):
    """Supervised training that begins with the features of another job; the classifier begins anew.

    The study names the file and what to take of it: ``checkpoint`` and ``checkpoint_tensors``.
    """

    name: ClassVar[str] = "from_features"
    title: ClassVar[str] = "full supervision of trained features"
    source: ClassVar[str] = "Kassem et al. 2023, IEEE Transactions on Medical Imaging 42(7), arXiv 2203.07345"
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "surgical_phase_classification", "rounds": 100, "epochs": 1, "min_rounds": 6, "patience": 3,
        "checkpoint": "FL_global_model.pt", "checkpoint_tensors": [r"^features\."],
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo"], "rounds": 50, "patience": 10}

    weighting: str = "samples"

    def card(self) -> str:
        return "All layers were trained with labels, from features that had been trained without."
