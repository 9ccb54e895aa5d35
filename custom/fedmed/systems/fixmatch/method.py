"""Methods whose sites without labels learn from pseudo-labels: FedFixMatch, FedUDA, FedRGD and FedMatch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmed.errors import JobError
from fedmed.methods.algorithm import UNIFORM
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
from fedmed.methods.labels_first import labels_first, small_labels_first
from fedmed.methods.method import MEAN, Method
from fedmed.systems.fixmatch.loss import GROWTHS
from fedmed.systems.fixmatch.server import check_helpers

SURE_TELLS = "Only these are learned from. Many at once, soon after the start, are as often wrong as the model is."
COMMONEST_TELLS = "At 100 % the model sees the same class in every frame: what it learns from itself then is that."
_NO_STATISTICS = {"buffers": "average"}  # with GroupNorm there are none that could stay at home
ANSWER_TELLS = (
    "The probabilities of the phases that the trained model gives to one picture of noise. A site that sends it also "
    "agrees that its ψ, the weights that it trained, goes to the two sites whose answers are most alike."
)


@dataclass(frozen=True)
class FedFixMatch(Method):
    """Sites with labels train on them; sites without, on their own confident predictions; the mean is by frames.

    Settings of the losses are the bundle's, overlays ``pseudo_labels`` and ``fixmatch``.
    """

    name: ClassVar[str] = "fedfixmatch"
    title: ClassVar[str] = "FedFixMatch"
    source: ClassVar[str] = (
        "Sohn et al. 2020, arXiv 2001.07685, in a federation as Kassem et al. 2023, arXiv 2203.07345"
    )
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "surgical_phase_classification", "rounds": 100, "epochs": 1, **labels_first(50),
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo"], **small_labels_first(30, 50)}
    caution: ClassVar[str] = PSEUDO_LABELS
    overlay: ClassVar[str] = "fixmatch"

    def roles(self) -> Mapping[str, Role]:
        """Sites with labels, sites without, which train and send the classifier too, and those only scored."""
        unlabelled = replace(UNLABELLED, overlays=("pseudo_labels", self.overlay))
        return {"supervised": replace(SUPERVISED, least=1), "unsupervised": unlabelled, "evaluate": EVALUATED}

    def rule(self) -> dict[str, Any]:
        return {"path": MEAN, "args": {"weighting": "samples"}}

    def scalars(self) -> tuple[Scalar, ...]:
        return (
            LOSS,
            Scalar("train_sure_fraction", "frames that count", "share", tells=SURE_TELLS),
            Scalar("train_commonest_fraction", "frames of the commonest class", "share", tells=COMMONEST_TELLS),
        )

    def card(self) -> str:
        return (
            "Sites without labels learned from the frames whose class the model was sure of, under strong changes of "
            "them (FixMatch), and the server averaged all sites."
        )

    def dry_run(self) -> tuple[str, ...]:
        return (
            "The share of frames whose class the model is sure of, and the share of the commonest class, leave with "
            "each update of a site without labels: the latter tells a little of how its operations are made up.",
        )


@dataclass(frozen=True)
class FedUDA(FedFixMatch):
    """As :class:`FedFixMatch`, with predictions, sharpened, in the place of classes; overlay ``uda``.

    Attributes:
        annealing: ``linear``, ``exp`` or ``log``: labelled frames whose class the model already knows are left out, by
            a threshold that grows so over the run (training-signal annealing); None = all count.
    """

    name: ClassVar[str] = "feduda"
    title: ClassVar[str] = "FedUDA"
    source: ClassVar[str] = "Xie et al. 2019, arXiv 1904.12848, as in Kassem et al. 2023, arXiv 2203.07345"
    overlay: ClassVar[str] = "uda"

    annealing: str | None = None

    def __post_init__(self) -> None:
        if self.annealing is not None and self.annealing not in GROWTHS:
            raise JobError(f"'annealing' is {self.annealing!r}; use one of {', '.join(GROWTHS)}, or null")

    def roles(self) -> Mapping[str, Role]:
        roles = dict(super().roles())
        if self.annealing is not None:
            roles["supervised"] = replace(roles["supervised"], overlays=("annealed",))
        return roles

    def settings(self, role: str) -> Mapping[str, Any]:
        return {"annealing": self.annealing} if role == "supervised" and self.annealing is not None else {}

    def card(self) -> str:
        return (
            "Sites without labels learned their own sharpened predictions of frames that the model was sure of, under "
            "strong changes of them (UDA), and the server averaged all sites."
        )


@dataclass(frozen=True)
class FedRGD(FedFixMatch):
    """As :class:`FedFixMatch`, a tenth of its weight, many more frames, and every site counts the same.

    The paper averages groups of sites, each with the labelled one, and then the groups. With a single group, as Kassem
    et al. compare with, that is the plain mean of all sites. Networks have GroupNorm, overlay ``groupnorm``.
    """

    name: ClassVar[str] = "fedrgd"
    title: ClassVar[str] = "FedRGD"
    source: ClassVar[str] = "Zhang et al. 2021, arXiv 2008.11364, with one group as in Kassem et al. 2023"
    example: ClassVar[Mapping[str, Any]] = {**FedFixMatch.example, **_NO_STATISTICS}
    small: ClassVar[Mapping[str, Any]] = {**FedFixMatch.small, **_NO_STATISTICS}

    def roles(self) -> Mapping[str, Role]:
        made = super().roles().items()
        return {name: replace(role, overlays=("groupnorm", *role.overlays)) for name, role in made}

    def rule(self) -> dict[str, Any]:
        return {"path": MEAN, "args": {"weighting": "uniform"}}

    def settings(self, role: str) -> Mapping[str, Any]:
        return {"confidence": 0.25, "unlabelled_weight": 0.1} if role == "unsupervised" else {}

    def card(self) -> str:
        return (
            "Sites without labels learned from frames whose class the model was rather sure of; every site counted the "
            "same, and the network has GroupNorm (after Zhang et al. 2021)."
        )


@dataclass(frozen=True)
class FedMatch(FedFixMatch):
    """Weights are σ + ψ: sites with labels train and send σ, sites without train and send ψ; each is its senders' mean.

    Settings of the losses are the bundle's, overlays ``fedmatch``, ``fedmatch_labelled`` and ``fedmatch_unlabelled``.

    Attributes:
        helpers: sites whose ψ a site without labels gets.
        every: rounds after which they are chosen anew.
    """

    name: ClassVar[str] = "fedmatch"
    title: ClassVar[str] = "FedMatch"
    source: ClassVar[str] = "Jeong et al. 2021, arXiv 2006.12097, with the values of Kassem et al. 2023"
    summed: ClassVar[str | None] = "fedmatch"

    helpers: int = 2
    every: int = 10

    def __post_init__(self) -> None:
        check_helpers(self.helpers, self.every)

    def roles(self) -> Mapping[str, Role]:
        """Sites that train σ, sites that train ψ, and those only scored; all receive both."""
        whole = ("fedmatch",)
        unlabelled = ("pseudo_labels", *whole, "fedmatch_unlabelled")
        return {
            "supervised": replace(SUPERVISED, least=1, overlays=(*whole, "fedmatch_labelled"), sends="sigma"),
            "unsupervised": replace(UNLABELLED, overlays=unlabelled, sends="psi"),
            "evaluate": replace(EVALUATED, overlays=whole),
        }

    def values(self) -> tuple[AuxiliaryValue, ...]:
        whom = "to the server; and with it the site's ψ, through the server, to two others without labels"
        return (AuxiliaryValue("noise_answer", "a number a phase", WITH_UPDATE, whom, ANSWER_TELLS),)

    def rule(self) -> dict[str, Any]:
        """Plain means of who sends a part, and helpers."""
        mean = {"path": MEAN, "args": {"weighting": {"path": UNIFORM, "args": {}}}}
        args = {"mean": mean, "helpers": self.helpers, "every": self.every}
        return {"path": "fedmed.systems.fixmatch.server.MeanWithHelpers", "args": args}

    def scalars(self) -> tuple[Scalar, ...]:
        return (
            *super().scalars(),
            Scalar("train_helper_divergence", "difference from helpers", "nats", "lower"),
            Scalar("train_psi_share", "entries of ψ that are not 0", "share"),
        )

    def card(self) -> str:
        return (
            "Sites with labels trained one part of the weights, sites without the other, with the models of the two "
            "sites that answer most alike beside their own (FedMatch, Jeong et al. 2021)."
        )

    def dry_run(self) -> tuple[str, ...]:
        return (
            *super().dry_run(),
            "A site without labels that sends noise_answer lets the server hand the weights that it trained to two "
            "other sites, alone, not averaged with anybody's.",
        )
