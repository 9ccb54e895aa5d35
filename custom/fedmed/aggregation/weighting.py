"""How much each site counts: by its steps, its samples, not at all, or by how much it has learnt."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.self_adaptive import FORMS, self_adaptive_weights
from fedmed.errors import FedMedError, JobError, UpdateRefused

SIMILARITY = "rsa"  # the value of an update by which FedMoCo weighs it


def site_weights(
    amounts: Mapping[str, float], user_weights: Mapping[str, float] | None = None, normalise: bool = True
) -> dict[str, float]:
    """Return each site's coefficient from an amount ``m`` and its user weight ``w``, in order of site names.

    With local steps as amounts this is Yang et al. 2021 (Medical Image Analysis 70, 101992), Eq. 3::

        normalise=True    c_k = m_k w_k / sum_j m_j w_j      coefficients sum to 1
        normalise=False   c_k = (m_k / sum_j m_j) w_k        Eq. 3 as printed; with w < 1 the whole step shrinks

    Args:
        amounts: site -> local optimizer steps of the round, or what else is weighed by, 0 or more.
        user_weights: site -> weight, 0 or more; a site without one counts with 1.
        normalise: whether the coefficients are made to sum to 1.

    Raises:
        JobError: a user weight is for an unknown site, negative or not finite.
        FedMedError: a negative amount, or nothing to weigh: all weights are 0.

    Example:
        >>> site_weights({"a": 400, "b": 400}, {"b": 0.5}, normalise=False)
        {'a': 0.5, 'b': 0.25}
    """
    weights = user_weights or {}
    check_user_weights(weights, amounts)
    for site, amount in amounts.items():
        if amount < 0:
            raise FedMedError(f"site '{site}' reports {amount} steps or samples; a number of these is 0 or more")
    sites = sorted(amounts)
    products = {site: amounts[site] * float(weights.get(site, 1.0)) for site in sites}
    # fsum is exact, so the coefficients do not depend on the order of the sites.
    total = math.fsum(products.values() if normalise else amounts.values())
    if not any(products.values()):
        raise FedMedError(f"no site has a weight above 0: amounts {dict(amounts)}, user weights {dict(weights)}")
    return {site: products[site] / total for site in sites}


def check_user_weights(user_weights: Mapping[str, float], sites: Collection[str] | None = None) -> None:
    """Refuse user weights that cannot be meant.

    Args:
        user_weights: site -> weight.
        sites: all sites of the job; None checks the values only.

    Raises:
        JobError: a site that is not among ``sites``, or a weight that is negative, not finite or no number.
    """
    for site, weight in user_weights.items():
        if sites is not None and site not in sites:
            raise JobError(f"user weight for unknown site '{site}'; the sites are {', '.join(sorted(sites))}")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight < math.inf:
            raise JobError(f"user weight of site '{site}' is {weight!r}; give a finite number, 0 or more")


@dataclass(frozen=True)
class Weighting:
    """What sites are weighed by. A site that did no step never counts.

    Attributes:
        kind: ``iterations`` (local steps, Yang et al. 2021), ``samples`` (training images, FedAvg), ``uniform``, or
            ``self_adaptive`` (how much the site's representation changed in the round, FedMoCo).
        form: of ``self_adaptive``: ``gap`` or ``softmax``; None = ``gap``.
        floor: of ``self_adaptive``: the least that a site counts, [0, 1); None = 0.

    Raises:
        JobError: an unknown kind or form, a number out of range, or a setting that the kind does not have.
    """

    kind: str = "iterations"
    form: str | None = None
    floor: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in AMOUNTS:
            raise JobError(f"'weighting' is {self.kind!r}; use {', '.join(AMOUNTS)}")
        for name in ("form", "floor"):
            if self.kind != "self_adaptive" and getattr(self, name) is not None:
                raise JobError(f"'{name}' is for weighting 'self_adaptive' only; leave it out for '{self.kind}'")
        if self.form is not None and self.form not in FORMS:
            raise JobError(f"'form' is {self.form!r}; use {' or '.join(FORMS)}")
        floor = self.floor
        if floor is not None and (not isinstance(floor, int | float) or isinstance(floor, bool) or not 0 <= floor < 1):
            raise JobError(f"'floor' is {floor!r}; give the least that a site counts, 0 or more and below 1")

    def check_sites(self, sites: int) -> None:
        """Refuse a floor that so many sites cannot all have.

        Raises:
            JobError: it exceeds an equal share.
        """
        if (self.floor or 0) * sites > 1:
            raise JobError(f"'floor' is {self.floor}; {sites} sites cannot all count so much: at most {1 / sites:g}")

    def check(self, update: Contribution) -> None:
        """Refuse an update whose similarity is none: it decides how much the site counts.

        Raises:
            UpdateRefused: it is no number in [-1, 1].
        """
        if self.kind != "self_adaptive" or SIMILARITY not in update.extras:
            return
        value = update.extras[SIMILARITY]
        if type(value) not in (int, float) or not -1 <= value <= 1:  # NaN is in no interval
            shown = repr(value) if type(value) in (int, float) else f"a {type(value).__name__}"
            raise UpdateRefused(update.site, f"its '{SIMILARITY}' is {shown}; it must be a number in [-1, 1]")

    def of_round(
        self, updates: Sequence[Contribution], user_weights: Mapping[str, float]
    ) -> tuple[str, list[tuple[list[str], str]]]:
        """Return by what this round's updates are weighed, and why not as the job says: (sites, reason), if so.

        Where a site that counts sends no ``rsa``, all are weighed by samples; without a number of samples, uniformly.
        """
        kind, reasons = self.kind, []
        counted = [update for update in updates if update.n_steps and user_weights.get(update.site, 1.0)]
        while lacking := sorted(update.site for update in counted if not NEEDS[kind](update)):
            instead = FALLBACK[kind]
            wanted = f"'{SIMILARITY}'" if kind == "self_adaptive" else "number of samples"
            does = "it sends" if len(lacking) == 1 else "they send"
            reasons.append((lacking, f"{does} no {wanted}, so this round weighs by '{instead}', not by '{kind}'"))
            kind = instead
        return kind, reasons

    def amounts(
        self, kind: str, updates: Sequence[Contribution], user_weights: Mapping[str, float]
    ) -> dict[str, float]:
        """Return what each site is weighed with, before user weights.

        Args:
            kind: what :meth:`of_round` chose.
            updates: the senders of a tensor.
            user_weights: sites of weight 0 have no part in ``self_adaptive`` weights.
        """
        trained = [update for update in updates if update.n_steps]
        idle = dict.fromkeys((update.site for update in updates), 0)
        if kind == "self_adaptive":
            r = {u.site: float(u.extras[SIMILARITY]) for u in trained if user_weights.get(u.site, 1.0)}
            return idle | (self_adaptive_weights(r, self.form or FORMS[0], self.floor or 0.0) if r else {})
        return idle | {update.site: AMOUNTS[kind](update) for update in trained}


AMOUNTS: dict[str, Callable[[Contribution], float]] = {
    "iterations": lambda update: update.n_steps,
    "samples": lambda update: update.n_samples,
    "uniform": lambda update: 1,
    "self_adaptive": lambda update: update.extras[SIMILARITY],  # of all sites together, see Weighting.amounts
}
NEEDS: dict[str, Callable[[Contribution], bool]] = {
    "iterations": lambda update: True,
    "samples": lambda update: update.n_samples > 0,
    "uniform": lambda update: True,
    "self_adaptive": lambda update: SIMILARITY in update.extras,
}
FALLBACK = {"self_adaptive": "samples", "samples": "uniform"}
