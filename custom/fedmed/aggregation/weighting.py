"""How much each site counts: by its steps, by its samples, or not at all; other weightings have files of their own."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from fedmed.aggregation.contribution import Contribution
from fedmed.errors import FedMedError

Reasons = list[tuple[list[str], str]]  # (sites, why the round is weighed otherwise because of them)


class Weighting:
    """What sites are weighed by, before user weights. A site that did no step never counts.

    Attributes:
        kind: its name in a job and in the run's record.
        wanted: what a site that cannot be weighed so did not send, in words.
        one_vote: whether it may be named beside a robust middle, under which every sender has one vote anyway.
    """

    kind: ClassVar[str]
    wanted: str = ""
    one_vote: ClassVar[bool] = False

    def check_sites(self, sites: int) -> None:
        """Refuse a setting that so many sites cannot have.

        Raises:
            JobError: says which.
        """

    def check_update(self, update: Contribution) -> None:
        """Refuse an update by what it says about how much its site counts.

        Raises:
            UpdateRefused: names the value.
        """

    def known(self, update: Contribution) -> bool:
        """Whether the update says what its site is weighed by."""
        return True

    def instead(self) -> "Weighting | None":
        """By what a round is weighed in which a site does not say it."""
        return None

    def amounts(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        """Return what each site is weighed with, 0 or more.

        Args:
            updates: the senders of a tensor; those that did a step are all :meth:`known`.
            user_weights: site -> weight; a weighting that compares sites leaves those with 0 out.
        """
        idle = dict.fromkeys((update.site for update in updates), 0.0)
        return idle | self.of_trained([update for update in updates if update.n_steps], user_weights)

    def of_trained(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        """:meth:`amounts` of sites that did a step."""
        raise NotImplementedError

    def of_round(
        self, updates: Sequence[Contribution], user_weights: Mapping[str, float]
    ) -> tuple["Weighting", Reasons]:
        """Return by what this round's updates are weighed, and why not as the job says, if so.

        Where one site that counts does not say what it is weighed by, all are weighed otherwise.
        """
        weighting, reasons = self, []
        counted = [update for update in updates if update.n_steps and user_weights.get(update.site, 1.0)]
        while lacking := sorted(update.site for update in counted if not weighting.known(update)):
            instead = weighting.instead()
            if instead is None:
                raise FedMedError(f"{', '.join(lacking)} cannot be weighed by '{weighting.kind}'")
            does = "it sends" if len(lacking) == 1 else "they send"
            otherwise = f"so this round weighs by '{instead.kind}', not by '{weighting.kind}'"
            reasons.append((lacking, f"{does} no {weighting.wanted}, {otherwise}"))
            weighting = instead
        return weighting, reasons


class IterationWeighting(Weighting):
    """By local optimizer steps: Yang et al. 2021, Eq. 3."""

    kind = "iterations"
    one_vote = True

    def of_trained(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        """Steps of the round."""
        return {update.site: update.n_steps for update in updates}


class UniformWeighting(Weighting):
    """Every site counts the same."""

    kind = "uniform"
    one_vote = True

    def of_trained(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        """1."""
        return {update.site: 1 for update in updates}


class SampleWeighting(Weighting):
    """By training images: FedAvg (McMahan et al. 2017, arXiv 1602.05629). Where a site does not say it, uniform."""

    kind = "samples"
    wanted = "number of samples"

    def known(self, update: Contribution) -> bool:
        """Whether it reports images."""
        return update.n_samples > 0

    def instead(self) -> Weighting:
        """Uniform."""
        return UniformWeighting()

    def of_trained(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        """Training images."""
        return {update.site: update.n_samples for update in updates}
