"""How much each site counts: by its steps, its samples, not at all, or by a number that it reports."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.self_adaptive import FORMS, self_adaptive_weights
from fedmed.errors import FedMedError, JobError, UpdateRefused


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
        by: ``iterations`` (local steps, Yang et al. 2021), ``samples`` (training images, FedAvg), ``uniform``, or
            ``reported``, a function of a number that each site sends beside its update.
        name: of that number, a similarity in [-1, 1].
        form: the function, ``gap`` or ``softmax`` (see :func:`fedmed.aggregation.self_adaptive.self_adaptive_weights`);
            None = ``gap``.
        floor: the least that a site counts by a reported number, [0, 1); None = 0.

    Raises:
        JobError: an unknown kind or form, a number out of range, or a setting that the kind does not have.
    """

    by: str = "iterations"
    name: str | None = None
    form: str | None = None
    floor: float | None = None

    @classmethod
    def parse(cls, weighting: Any) -> "Weighting":
        """Make one from a job's word, or from its mapping such as ``{by: reported, name: …, form: gap}``."""
        if not isinstance(weighting, Mapping):
            return cls(weighting)
        known = [field.name for field in fields(cls)]
        if unknown := sorted(str(key) for key in set(weighting) - set(known)):
            raise JobError(f"'weighting' has no '{unknown[0]}'; it has {', '.join(known)}")
        return cls(**weighting)

    def __post_init__(self) -> None:
        if not isinstance(self.by, str) or self.by not in NEEDS:
            raise JobError(f"'weighting' is {self.by!r}; use {', '.join(NEEDS)}")
        for key in ("name", "form", "floor"):
            if self.by != REPORTED and getattr(self, key) is not None:
                raise JobError(f"'{key}' is for weighting by '{REPORTED}' only; leave it out for '{self.by}'")
        if self.by == REPORTED and (not isinstance(self.name, str) or not self.name):
            raise JobError(f"'weighting' by '{REPORTED}' needs 'name', that of the number which sites report")
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
        """Refuse an update whose number is not one: it decides how much the site counts.

        Raises:
            UpdateRefused: it is not a number in [-1, 1].
        """
        if self.by != REPORTED or self.name not in update.extras:
            return
        value = update.extras[self.name]
        if type(value) not in (int, float) or not -1 <= value <= 1:  # NaN is in no interval
            shown = repr(value) if type(value) in (int, float) else f"a {type(value).__name__}"
            raise UpdateRefused(update.site, f"its '{self.name}' is {shown}; it must be a number in [-1, 1]")

    def of_round(
        self, updates: Sequence[Contribution], user_weights: Mapping[str, float]
    ) -> tuple[str, list[tuple[list[str], str]]]:
        """Return by what this round's updates are weighed, and why not as the job says: (sites, reason), if so.

        Where a site that counts does not report the number, all are weighed by samples; without a number of samples,
        uniformly.
        """
        by, reasons = self.by, []
        counted = [update for update in updates if update.n_steps and user_weights.get(update.site, 1.0)]
        while lacking := sorted(update.site for update in counted if not NEEDS[by](update, self.name)):
            instead = FALLBACK[by]
            wanted, used = (f"'{self.name}'",) * 2 if by == REPORTED else ("number of samples", f"'{by}'")
            does = "it sends" if len(lacking) == 1 else "they send"
            reasons.append((lacking, f"{does} no {wanted}, so this round weighs by '{instead}', not by {used}"))
            by = instead
        return by, reasons

    def amounts(self, by: str, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        """Return what each site is weighed with, before user weights.

        Args:
            by: what :meth:`of_round` chose.
            updates: the senders of a tensor.
            user_weights: sites of weight 0 have no part in weights by a reported number.
        """
        trained = [update for update in updates if update.n_steps]
        idle = dict.fromkeys((update.site for update in updates), 0)
        if by == REPORTED:
            r = {u.site: float(u.extras[self.name]) for u in trained if user_weights.get(u.site, 1.0)}
            return idle | (self_adaptive_weights(r, self.form or FORMS[0], self.floor or 0.0) if r else {})
        return idle | {update.site: AMOUNTS[by](update) for update in trained}


REPORTED = "reported"
AMOUNTS: dict[str, Callable[[Contribution], float]] = {
    "iterations": lambda update: update.n_steps,
    "samples": lambda update: update.n_samples,
    "uniform": lambda update: 1,
}
NEEDS: dict[str, Callable[[Contribution, str | None], bool]] = {
    "iterations": lambda update, name: True,
    "samples": lambda update, name: update.n_samples > 0,
    "uniform": lambda update, name: True,
    REPORTED: lambda update, name: name in update.extras,
}
FALLBACK = {REPORTED: "samples", "samples": "uniform"}
