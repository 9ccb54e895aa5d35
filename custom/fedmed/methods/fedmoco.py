"""Federated contrastive pre-training (FedMoCo, Dong and Voiculescu 2021, arXiv 2109.07504)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.errors import JobError
from fedmed.methods.declarations import BEFORE_TRAINING, FROM_A_ROUND, WITH_UPDATE, BesideModel, Scalar
from fedmed.methods.fedavg_moco import CHANGE, CHANGE_TELLS, FedAvgMoCo
from fedmed.methods.method import MEAN

SELF_ADAPTIVE = "fedmed.aggregation.self_adaptive.SelfAdaptiveWeighting"
OTHERS = "through the server to the other sites, without this site's name"


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

    def values(self) -> tuple[BesideModel, ...]:
        """The change of the representation with each update; from a round on statistics of features before it."""
        change = BesideModel(CHANGE, "one number", WITH_UPDATE, "to the server", CHANGE_TELLS, needed=self.adaptive)
        if self.exchange_from is None:
            return (change,)
        return (
            self._statistic("mu", "d numbers", OTHERS, "The mean of the features of all the site's training images."),
            self._statistic(
                "sigma",
                "(d + 1) d / 2 numbers",
                OTHERS,
                "How the features of the site's training images vary together: their covariance.",
            ),
            self._statistic("n", "one number", "to the server", "How many images these are of."),
            change,
        )

    def _statistic(self, name: str, shape: str, direction: str, tells: str) -> BesideModel:
        start = self.exchange_from or 0
        return BesideModel(name, shape, BEFORE_TRAINING, direction, tells, when=FROM_A_ROUND, round=start)

    def contradictions(self, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """An exchange after the last round, which the study asks for and no site ever does."""
        start, rounds = self.exchange_from, said["rounds"]
        if start is not None and start >= rounds:
            text = (
                f"'method.args.exchange_from' is {start}, counted from 0, and 'rounds' is {rounds}: no site would ever "
            )
            yield "method", f"{text}get the others' statistics; give at most {rounds - 1}, or null for no exchange"

    def rule(self) -> dict[str, Any]:
        """The mean weighted by Eq. 7, a function of the change that each site reports."""
        if not self.adaptive:
            return super().rule()
        weighting = {"by": SELF_ADAPTIVE, "name": CHANGE, "form": self.form, "floor": self.floor}
        return {"path": MEAN, "args": {"weighting": weighting}}

    def scalars(self) -> tuple[Scalar, ...]:
        """As MoCo, and what became of the others' statistics."""
        return (*super().scalars(), Scalar("train_clamped_fraction", "clamped synthetic values", "share", "lower"))

    def card(self) -> str:
        """How the model came about; whether sites also exchanged statistics tell the rounds alone."""
        weighed = "how much training changed each site's similarities between images" if self.adaptive else "images"
        return f"Pre-training without labels (FedMoCo); updates are averaged by {weighed}."

    def dry_run(self) -> tuple[str, ...]:
        """Who gets the statistics."""
        return () if self.exchange_from is None else ("Mean and covariance of features go on to the other sites.",)
