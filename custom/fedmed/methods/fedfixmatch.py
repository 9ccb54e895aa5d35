"""Federated averaging where sites without labels learn from what the model is sure of (FixMatch at each of them)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmed.methods.declarations import EVALUATED, LOSS, OWN_PREDICTIONS, SUPERVISED, UNLABELLED, Role, Scalar
from fedmed.methods.labels_first import labels_first, small_labels_first
from fedmed.methods.method import MEAN, Method

SURE_TELLS = "Only these are learned from. Many at once, soon after the start, are as often wrong as the model is."
COMMONEST_TELLS = "At 100 % the model sees the same class in every frame: what it learns from itself then is that."


@dataclass(frozen=True)
class FedFixMatch(Method):
    """Sites with labels train on them; sites without, on their own confident predictions; the mean is by frames.

    Settings of the losses are the bundle's, overlays ``pseudo_labels`` and ``fixmatch``.
    """

    title: ClassVar[str] = "FedFixMatch"
    source: ClassVar[str] = (
        "Sohn et al. 2020, arXiv 2001.07685, in a federation as Kassem et al. 2023, arXiv 2203.07345"
    )
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "surgical_phase_classification", "rounds": 100, "epochs": 1, **labels_first(50),
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo"], **small_labels_first(30, 50)}
    caution: ClassVar[str] = OWN_PREDICTIONS
    overlay: ClassVar[str] = "fixmatch"

    def roles(self) -> Mapping[str, Role]:
        """Sites with labels, sites without, which train and send the classifier too, and those only scored."""
        unlabelled = replace(UNLABELLED, overlays=("pseudo_labels", self.overlay))
        return {"supervised": replace(SUPERVISED, least=1), "unsupervised": unlabelled, "evaluate": EVALUATED}

    def rule(self) -> dict[str, Any]:
        """The mean weighted by frames."""
        return {"path": MEAN, "args": {"weighting": "samples"}}

    def scalars(self) -> tuple[Scalar, ...]:
        """The loss, how many frames count, and whether they are all the same to the model."""
        return (
            LOSS,
            Scalar("train_sure_fraction", "frames that count", "share", tells=SURE_TELLS),
            Scalar("train_commonest_fraction", "frames of the commonest class", "share", tells=COMMONEST_TELLS),
        )

    def card(self) -> str:
        """How the model came about."""
        return (
            "Sites without labels learned from the frames whose class the model was sure of, under strong changes of "
            "them (FixMatch), and the server averaged all sites."
        )

    def dry_run(self) -> tuple[str, ...]:
        """What the scalars tell."""
        return (
            "The share of frames whose class the model is sure of, and the share of the commonest class, leave with "
            "each update of a site without labels: the latter tells a little of how its operations are made up.",
        )
