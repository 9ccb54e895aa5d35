"""Momentum contrast of each site's own images under plain averaging (He et al. 2020; McMahan et al. 2017)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.methods.declarations import LOSS, WITH_UPDATE, BesideModel, Role, Scalar
from fedmed.methods.guard import Guard
from fedmed.methods.guard_contrast import ACCURACY, SIMILARITY, ZERO, ContrastGuard
from fedmed.methods.method import MEAN, Method

CHANGE = "rsa"
CHANGE_TELLS = (
    "How alike a site's images are to one another, before and after the round's training: one rank correlation, which "
    "says how much the site learned, and nothing of any single image."
)
ACCURACY_TELLS = (
    "Contrastive accuracy is the share of views whose partner was told from all negatives. It and the loss depend on "
    "the number of negatives; compare them within a run only."
)
OWN_TELLS = (
    "Own keys is the share of views in whose queue there was an earlier key of the same image, a false negative. At a "
    "site with fewer than four images for each key of the queue such keys are left out (own_keys)."
)
CONTRASTIVE = Role(
    "trains without labels",
    "fedmed.flare.executors.ContrastiveExecutor",
    overlays=("pretrain",),
    lists=(("unlabeled", "training"),),
    needs="This site has images, labelled or not: its datalist needs 'unlabeled' or 'training'.",
    least=1,
)


@dataclass(frozen=True)
class FedAvgMoCo(Method):
    """Each site learns to find the second view of an image among its other images; the server averages by images."""

    title: ClassVar[str] = "MoCo with federated averaging"
    source: ClassVar[str] = "He et al. 2020, arXiv 1911.05722"
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "cxr_classification", "rounds": 200, "epochs": 1, "select": "last", "evaluate": False,
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {
        "overlays": ["small"],
        "rounds": 20,
        # of some hundred images a site: a longer queue spans rounds, and features become the same for all images
        "overrides": {"unsupervised": {"key_policy": "refill", "queue_size": 128}},
    }

    def roles(self) -> Mapping[str, Role]:
        """Sites whose labels, if they have any, are not used."""
        return {"unsupervised": CONTRASTIVE}

    def values(self) -> tuple[BesideModel, ...]:
        """How much a round changed a site's representation; here for the report alone."""
        return (BesideModel(CHANGE, "one number", WITH_UPDATE, "to the server", CHANGE_TELLS, needed=False),)

    def rule(self) -> dict[str, Any]:
        """The mean weighted by images."""
        return {"path": MEAN, "args": {"weighting": "samples"}}

    def guards(self) -> Mapping[str, Guard]:
        """Against features that become the same for all images."""
        return {"contrast": ContrastGuard()}

    def scalars(self) -> tuple[Scalar, ...]:
        """The loss, and how well views are told apart."""
        return (
            LOSS,
            Scalar(ACCURACY, "contrastive accuracy", "share", "higher", ACCURACY_TELLS),
            Scalar(SIMILARITY, "similarity of two views"),
            Scalar(ZERO, "images without a feature", "share", "lower"),
            Scalar("train_own_keys", "views with a key of their own image in the queue", "share", tells=OWN_TELLS),
        )

    def report_sections(self) -> tuple[str, ...]:
        """What sites learned, and how much each round changed."""
        return ("fedmed.reports.representation_section.RepresentationSection",)

    def next_methods(self) -> Mapping[str, str]:
        """A quick look at the encoder, and the model to use."""
        return {
            "linear": "trains one layer on the frozen encoder: it tells how much has been learnt",
            "fine_tuning": "trains the whole network with few labels: that is the model to use",
        }

    def card(self) -> str:
        """How the model came about."""
        return "Pre-training without labels by momentum contrast; updates are averaged by the images behind them."
