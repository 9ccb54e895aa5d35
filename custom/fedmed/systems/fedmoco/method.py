"""FedMoCo (Dong and Voiculescu 2021), FedAvg with MoCo beside it, and what is trained on the encoder afterwards."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from fedmed.errors import JobError
from fedmed.methods.declarations import (
    BEFORE_TRAINING,
    EVALUATED,
    FROM_A_ROUND,
    LOSS,
    SUPERVISED,
    UNLABELLED,
    WITH_UPDATE,
    AuxiliaryValue,
    Role,
    Scalar,
)
from fedmed.methods.guard import Guard
from fedmed.methods.method import MEAN, Method
from fedmed.methods.supervised_fedavg import SupervisedFedAvg
from fedmed.systems.fedmoco.server import ACCURACY, SIMILARITY, ZERO, ContrastGuard

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
CONTRASTIVE = replace(
    UNLABELLED,
    executor="fedmed.flare.executors.ContrastiveExecutor",
    overlays=("pretrain",),
    needs="This site has images, labelled or not: its datalist needs 'unlabeled' or 'training'.",
    least=1,
)
SELF_ADAPTIVE = "fedmed.systems.fedmoco.server.SelfAdaptiveWeighting"
OTHERS = "through the server to the other sites, without this site's name"
START = {"checkpoint": "FL_global_model.pt", "checkpoint_tensors": [r"^encoder\."]}


@dataclass(frozen=True)
class FedAvgMoCo(Method):
    """Each site learns to find the second view of an image among its other images; the server averages by images."""

    name: ClassVar[str] = "fedavg_moco"
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

    def values(self) -> tuple[AuxiliaryValue, ...]:
        return (AuxiliaryValue(CHANGE, "one number", WITH_UPDATE, "to the server", CHANGE_TELLS, needed=False),)

    def rule(self) -> dict[str, Any]:
        return {"path": MEAN, "args": {"weighting": "samples"}}

    def guards(self) -> Mapping[str, Guard]:
        return {"contrast": ContrastGuard()}

    def scalars(self) -> tuple[Scalar, ...]:
        return (
            LOSS,
            Scalar(ACCURACY, "contrastive accuracy", "share", "higher", ACCURACY_TELLS),
            Scalar(SIMILARITY, "similarity of two views"),
            Scalar(ZERO, "images without a feature", "share", "lower"),
            Scalar("train_own_keys", "views with a key of their own image in the queue", "share", tells=OWN_TELLS),
        )

    def report_sections(self) -> tuple[str, ...]:
        return ("fedmed.systems.fedmoco.report.RepresentationSection",)

    def next_methods(self) -> Mapping[str, str]:
        return {
            "linear": "trains one layer on the frozen encoder: it tells how much has been learnt",
            "fine_tuning": "trains the whole network with few labels: that is the model to use",
        }

    def card(self) -> str:
        return "Pre-training without labels by momentum contrast; updates are averaged by the images behind them."


@dataclass(frozen=True)
class FedMoCo(FedAvgMoCo):
    """MoCo in which sites learn from statistics of the others' features and count by how much they have learned.

    Attributes:
        exchange_from: the round, counted from 0, from which sites exchange mean and covariance of their features
            (t_w; the paper's 50); None = never.
        adaptive: weigh sites by how much their representation changed (Eq. 7); if not, by their images.
        form: of these weights, ``gap`` (Eq. 7) or ``softmax``.
        floor: the least that a site counts, [0, 1).
    """

    name: ClassVar[str] = "fedmoco"
    title: ClassVar[str] = "FedMoCo"
    source: ClassVar[str] = "Dong and Voiculescu 2021, arXiv 2109.07504"
    aggregator: ClassVar[str] = "fedmed.flare.aggregators.SelfAdaptiveAggregator"
    small_args: ClassVar[Mapping[str, Any]] = {"exchange_from": 5}  # of 20 rounds, as the paper's 50 of 200

    exchange_from: int | None = 50
    adaptive: bool = True
    form: str = "gap"
    floor: float = 0.0

    def __post_init__(self) -> None:
        start = self.exchange_from
        if start is not None and (type(start) is not int or start < 0):
            raise JobError(f"'exchange_from' is {start!r}; give a round, 0 or more, or null for no exchange")
        if type(self.adaptive) is not bool:
            raise JobError(f"'adaptive' is {self.adaptive!r}; use true or false")

    def values(self) -> tuple[AuxiliaryValue, ...]:
        change = AuxiliaryValue(CHANGE, "one number", WITH_UPDATE, "to the server", CHANGE_TELLS, needed=self.adaptive)
        if self.exchange_from is None:
            return (change,)
        mean = "The mean of the features of all the site's training images."
        covariance = "How the features of the site's training images vary together: their covariance."
        statistic = partial(AuxiliaryValue, task=BEFORE_TRAINING, when=FROM_A_ROUND, round=self.exchange_from)
        return (
            statistic("mu", "d numbers", direction=OTHERS, tells=mean),
            statistic("sigma", "(d + 1) d / 2 numbers", direction=OTHERS, tells=covariance),
            statistic("n", "one number", direction="to the server", tells="How many images these are of."),
            change,
        )

    def contradictions(self, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        start, rounds = self.exchange_from, said["rounds"]
        if start is not None and start >= rounds:
            late = f"'method.args.exchange_from' is {start}, counted from 0, and 'rounds' is {rounds}"
            hint = f"give at most {rounds - 1}, or null for no exchange"
            yield "method", f"{late}: no site would ever get the others' statistics; {hint}"

    def rule(self) -> dict[str, Any]:
        """The mean weighted by Eq. 7, a function of the change that each site reports."""
        if not self.adaptive:
            return super().rule()
        weighting = {"by": SELF_ADAPTIVE, "name": CHANGE, "form": self.form, "floor": self.floor}
        return {"path": MEAN, "args": {"weighting": weighting}}

    def scalars(self) -> tuple[Scalar, ...]:
        return (*super().scalars(), Scalar("train_clamped_fraction", "clamped synthetic values", "share", "lower"))

    def card(self) -> str:
        """Words of the model card; whether sites also exchanged statistics is told by the rounds alone."""
        weighed = "how much training changed each site's similarities between images" if self.adaptive else "images"
        return f"Pre-training without labels (FedMoCo); updates are averaged by {weighed}."

    def dry_run(self) -> tuple[str, ...]:
        return () if self.exchange_from is None else ("Mean and covariance of features go on to the other sites.",)


@dataclass(frozen=True)
class Linear(SupervisedFedAvg):
    """The encoder stays as it was pre-trained; sites fit a linear classifier, and the server averages it by images."""

    name: ClassVar[str] = "linear"
    title: ClassVar[str] = "linear classification of a pre-trained encoder"
    source: ClassVar[str] = "He et al. 2020, arXiv 1911.05722, section 4.1"
    example: ClassVar[Mapping[str, Any]] = {"bundle": "cxr_classification", "rounds": 2, "epochs": 10, **START}
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["small"]}
    overlay: ClassVar[str] = "linear"

    weighting: str = "samples"

    def roles(self) -> Mapping[str, Role]:
        labelled = replace(SUPERVISED, least=1, overlays=(self.overlay,))
        return {"supervised": labelled, "evaluate": replace(EVALUATED, overlays=(self.overlay,))}

    def card(self) -> str:
        return "A linear classifier on the features of a pre-trained encoder, which stayed as it was."


@dataclass(frozen=True)
class FineTuning(Linear):
    """All weights are trained with labels, from a pre-trained encoder; the server averages by images."""

    name: ClassVar[str] = "fine_tuning"
    title: ClassVar[str] = "fine-tuning of a pre-trained encoder"
    source: ClassVar[str] = "Dong and Voiculescu 2021, arXiv 2109.07504"
    example: ClassVar[Mapping[str, Any]] = {"bundle": "cxr_classification", "rounds": 10, "epochs": 5, **START}
    overlay: ClassVar[str] = "finetune"

    def card(self) -> str:
        return "All layers were trained with labels, starting from a pre-trained encoder."
