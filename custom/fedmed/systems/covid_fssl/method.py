"""Federated semi-supervised segmentation by consistency of pseudo-labels (Yang et al. 2021)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmed.methods.declarations import EVALUATED, LOSS, PSEUDO_LABELS, SUPERVISED, UNLABELLED, Role, Scalar
from fedmed.methods.guard import FRACTION, Guard, PseudoLabelGuard
from fedmed.methods.method import MEAN, Method

ADVICE = (
    "lower unsupervised_learning_rate or the site's user weight, raise confidence, or set consistency_scope to "
    "two_sided"
)


@dataclass(frozen=True)
class Consistency(Method):
    """Sites without labels learn from the confident part of the global model's own predictions, under other views.

    The server weighs sites by their steps (Eq. 3). Settings of the loss are the bundle's, overlay ``consistency``.
    """

    name: ClassVar[str] = "consistency"
    title: ClassVar[str] = "consistency of pseudo-labels"
    source: ClassVar[str] = "Yang et al. 2021, Medical Image Analysis 70, 101992"
    caution: ClassVar[str] = PSEUDO_LABELS
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "covid_ct_segmentation", "rounds": 50, "steps": 400, "warm_start": {"rounds": 25},
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo"], "rounds": 14, "steps": 30, "warm_start": {"rounds": 6}}

    def roles(self) -> Mapping[str, Role]:
        unlabelled = replace(UNLABELLED, overlays=("unlabelled", "consistency"))
        return {"supervised": SUPERVISED, "unsupervised": unlabelled, "evaluate": EVALUATED}

    def rule(self) -> dict[str, Any]:
        """The mean weighted by local steps, Eq. 2 and 3."""
        return {"path": MEAN, "args": {"weighting": "iterations"}}

    def guards(self) -> Mapping[str, Guard]:
        return {"pseudo_labels": PseudoLabelGuard(ADVICE)}

    def scalars(self) -> tuple[Scalar, ...]:
        return (
            LOSS,
            Scalar(FRACTION, "predicted foreground", "share"),
            Scalar("train_confident_fraction", "confident voxels", "share"),
        )

    def card(self) -> str:
        return "Sites without labels learned from the confident part of the model's own predictions (Yang et al. 2021)."

    def dry_run(self) -> tuple[str, ...]:
        return ("The mean share of voxels that the model takes for foreground leaves with each update of a site.",)
