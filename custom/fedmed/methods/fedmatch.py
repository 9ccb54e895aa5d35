"""Federated training of weights in two parts, with helpers among sites without labels (FedMatch, Jeong et al. 2021)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmed.aggregation.helpers import check_helpers
from fedmed.methods.declarations import EVALUATED, SUPERVISED, UNLABELLED, WITH_UPDATE, BesideModel, Role, Scalar
from fedmed.methods.fedfixmatch import FedFixMatch
from fedmed.methods.method import MEAN

ANSWER_TELLS = (
    "The probabilities of the phases that the trained model gives to one picture of noise. A site that sends it also "
    "agrees that its ψ, the weights that it trained, goes to the two sites whose answers are most alike."
)


@dataclass(frozen=True)
class FedMatch(FedFixMatch):
    """Weights are σ + ψ: sites with labels train and send σ, sites without train and send ψ; each is its senders' mean.

    Settings of the losses are the bundle's, overlays ``fedmatch``, ``fedmatch_labelled`` and ``fedmatch_unlabelled``.

    Attributes:
        helpers: sites whose ψ a site without labels gets.
        every: rounds after which they are chosen anew.
    """

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

    def values(self) -> tuple[BesideModel, ...]:
        """The answer by which helpers are chosen."""
        whom = "to the server; and with it the site's ψ, through the server, to two others without labels"
        return (BesideModel("noise_answer", "a number a phase", WITH_UPDATE, whom, ANSWER_TELLS),)

    def rule(self) -> dict[str, Any]:
        """Plain means of who sends a part, and helpers."""
        uniform = {"path": "fedmed.aggregation.weighting.UniformWeighting", "args": {}}
        mean = {"path": MEAN, "args": {"weighting": uniform}}
        args = {"mean": mean, "helpers": self.helpers, "every": self.every}
        return {"path": "fedmed.aggregation.helpers.MeanWithHelpers", "args": args}

    def scalars(self) -> tuple[Scalar, ...]:
        """The loss, how many frames count, what helpers say, and how much of ψ there is."""
        return (
            *super().scalars(),
            Scalar("train_helper_divergence", "difference from helpers", "nats", "lower"),
            Scalar("train_psi_share", "entries of ψ that are not 0", "share"),
        )

    def card(self) -> str:
        """How the model came about."""
        return (
            "Sites with labels trained one part of the weights, sites without the other, with the models of the two "
            "sites that answer most alike beside their own (FedMatch, Jeong et al. 2021)."
        )

    def dry_run(self) -> tuple[str, ...]:
        """What the scalars tell, and where ψ goes."""
        return (
            *super().dry_run(),
            "A site without labels that sends noise_answer lets the server hand the weights that it trained to two "
            "other sites, alone, not averaged with anybody's.",
        )
