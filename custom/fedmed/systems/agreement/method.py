"""Federated semi-supervised training where the local model and the labelled sites' mean agree (after Zhang 2023)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmed.methods.declarations import (
    EVALUATED,
    LOSS,
    PSEUDO_LABELS,
    SUPERVISED,
    UNLABELLED,
    WITH_UPDATE,
    AuxiliaryValue,
    Role,
    Scalar,
)
from fedmed.methods.guard import FRACTION, Guard, PseudoLabelGuard
from fedmed.methods.method import MEAN, Method

SERVER = "to the server"
RULE = "fedmed.systems.agreement.server.LabelledMean"
COUNT_TELLS = (
    "Voxels that count (images, where each has one class) are those at which the site's own model and the mean of the "
    "labelled sites name the same class, and with a gate are sure enough of it; from the others no class is learned."
)


@dataclass(frozen=True)
class Agreement(Method):
    """Sites without labels learn what their model and the mean of the labelled sites say together.

    The labelled sites' mean is not diluted: the others' difference corrects it. Settings of the loss are the bundle's,
    overlay ``agreement``. The arguments are those of :class:`fedmed.systems.agreement.server.LabelledMean`.

    Attributes:
        combine: ``correct``, ``join`` or ``average``.
        strength: how much of the others' difference corrects the mean, above 0, at most 2.
        ramp_rounds: rounds over which it grows.
        gate: count voxels only from a quantile of the labelled sites' own confidence on; sets ``everywhere`` to false.
        fixed_gate: that probability, 0 to 1, where no labelled site tells its confidence.
        careful: labelled sites judge what the others add, and the server lowers its weight while it does harm.
        align: pseudo-labels are drawn towards the shares of the classes at labelled sites (distribution alignment).
    """

    name: ClassVar[str] = "agreement"
    title: ClassVar[str] = "agreement"
    source: ClassVar[str] = "after Zhang et al. 2023, IEEE Transactions on Medical Imaging, 10.1109/TMI.2023.3314430"
    caution: ClassVar[str] = PSEUDO_LABELS
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "covid_ct_segmentation", "rounds": 50, "steps": 400, "warm_start": {"rounds": 25},
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo"], "rounds": 14, "steps": 30, "warm_start": {"rounds": 6}}

    combine: str = "correct"
    strength: float = 1.0
    ramp_rounds: int = 0
    gate: bool = False
    careful: bool = True
    align: bool = False
    fixed_gate: float = 0.9

    def roles(self) -> Mapping[str, Role]:
        needs = {"judged_means": self.gate or self.careful or self.align, "label_confidence": self.gate}
        needs["label_shares"] = self.align
        overlays = tuple(overlay for overlay, needed in needs.items() if needed)
        return {
            "supervised": replace(SUPERVISED, overlays=overlays, least=1),
            "unsupervised": replace(UNLABELLED, overlays=("unlabelled", "agreement")),
            "evaluate": EVALUATED,
        }

    def values(self) -> tuple[AuxiliaryValue, ...]:
        share = "The share of the site's voxels, or images, on which two models agree."
        sure = "How sure the received model is, on the validation list, where it is right: one number for each class."
        judged = "The score on the validation list of the model with what sites without labels added, and without."
        values = [AuxiliaryValue("agreed_share", "one number", WITH_UPDATE, SERVER, share)]
        if self.gate:
            values.append(AuxiliaryValue("label_confidence", "a number a class", WITH_UPDATE, SERVER, sure))
        if self.careful:
            values.append(AuxiliaryValue("mean_scores", "2 numbers", WITH_UPDATE, SERVER, judged))
        if self.align:
            shares = "The share of each class among the training labels."
            values.append(AuxiliaryValue("label_shares", "a number a class", WITH_UPDATE, SERVER, shares))
        return tuple(values)

    def rule(self) -> dict[str, Any]:
        args = {"combine": self.combine, "strength": self.strength, "ramp_rounds": self.ramp_rounds}
        args |= {"gate": self.gate, "careful": self.careful, "mean": {"path": MEAN, "args": {}}}
        args |= {"fixed_gate": self.fixed_gate} if self.gate else {}
        return {"path": RULE, "args": args}

    def moved_by_silent(self, rule: Mapping[str, Any]) -> bool:
        """Not where the others' difference, which is then 0, corrects the labelled sites' mean."""
        return (rule["path"], rule["args"].get("combine")) != (RULE, "correct")

    def settings(self, role: str) -> Mapping[str, Any]:
        return {"everywhere": False} if self.gate and role == "unsupervised" else {}

    def contradictions(self, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if self.gate and said.get("overrides", {}).get("unsupervised", {}).get("everywhere"):
            text = "'overrides.unsupervised.everywhere' is true: every voxel would be learned, whatever the gate says"
            yield "overrides", f"{text}; leave it out, or set the method's 'gate' to false"

    def guards(self) -> Mapping[str, Guard]:
        advice = ["lower unsupervised_learning_rate"]
        advice += ["lower the method's strength"] if self.combine == "correct" else []
        advice += [] if self.careful else ["set the method's careful, so that labelled sites judge"]
        return {"pseudo_labels": PseudoLabelGuard(", or ".join(advice))}

    def scalars(self) -> tuple[Scalar, ...]:
        return (
            LOSS,
            Scalar(FRACTION, "predicted foreground", "share"),
            Scalar("train_agreed_fraction", "voxels that count", "share", tells=COUNT_TELLS),
        )

    def report_sections(self) -> tuple[str, ...]:
        return ("fedmed.systems.agreement.report.AddedWeightSection",)

    def card(self) -> str:
        return (
            "Sites without labels learned what their own model and the mean of the labelled sites agreed on; their "
            "difference corrected that mean (after Zhang et al. 2023)."
        )

    def dry_run(self) -> tuple[str, ...]:
        return (
            "The mean share of voxels that the model takes for foreground leaves with each update of a site without "
            "labels.",
            "A labelled site scores two models on its validation list in each round and sends both scores.",
        )
