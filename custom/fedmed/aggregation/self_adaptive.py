"""How much each site counts by how much its representation changed: FedMoCo (arXiv 2109.07504), Eq. 7."""

import math
from collections.abc import Mapping, Sequence

from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.reported import ReportedWeighting
from fedmed.errors import FedMedError, JobError

FORMS = ("gap", "softmax")
NO_CHANGE = 1e-12  # below this sum of gaps nothing can be told apart


class SelfAdaptiveWeighting(ReportedWeighting):
    """By how much each site's representation changed in the round (FedMoCo, Eq. 7).

    Where a site that counts does not send its similarity, the round is weighed by samples.

    Args:
        name: of the similarity, among the values beside the model that a site sends.
        form: ``gap`` or ``softmax``.
        floor: the least that a site counts, [0, 1).

    Raises:
        JobError: an unknown form, or a number out of range.
    """

    kind = "similarity"

    def __init__(self, name: str, form: str = FORMS[0], floor: float = 0.0) -> None:
        super().__init__(name)
        _check_form(form)
        if not isinstance(floor, int | float) or isinstance(floor, bool) or not 0 <= floor < 1:
            raise JobError(f"'floor' is {floor!r}; give the least that a site counts, 0 or more and below 1")
        self.form, self.floor = form, floor

    def check_sites(self, sites: int) -> None:
        """Refuse a floor that exceeds an equal share."""
        if self.floor * sites > 1:
            raise JobError(f"'floor' is {self.floor}; {sites} sites cannot all count so much: at most {1 / sites:g}")

    def out_of_range(self, value: float) -> str | None:
        """What a similarity must be, in words, if this is not one."""
        return None if -1 <= value <= 1 else "in [-1, 1]"

    def of_trained(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        """Shares that sum to 1, over the sites whose user weight is not 0."""
        r = {u.site: float(u.extras[self.name]) for u in updates if user_weights.get(u.site, 1.0)}
        others = dict.fromkeys((update.site for update in updates), 0.0)
        return others | (self_adaptive_weights(r, self.form, self.floor) if r else {})


def self_adaptive_weights(r: Mapping[str, float], form: str = "gap", floor: float = 0.0) -> dict[str, float]:
    """Return each site's coefficient from its representation similarity, in order of site names; they sum to 1.

    ::

        form="gap"       a_k = (1 - r_k) / Σ_j (1 - r_j)      Eq. 7; all r = 1: 1 / K
        form="softmax"   a_k = e^(-r_k) / Σ_j e^(-r_j)

    The equation is the reading of a text that gives it in words. With ``gap`` a site whose representation did not
    change counts nothing, and a diverging one most of all: the caller must have refused updates that are not finite.
    The number of images has no influence, on purpose.

    Args:
        r: site -> Spearman correlation of its dissimilarities before and after training; clipped to [-1, 1].
        form: ``gap`` or ``softmax``.
        floor: smallest coefficient of a site, in [0, 1 / K]; what the others have above it shrinks alike.

    Raises:
        JobError: an unknown form, or a floor outside its range.
        FedMedError: there is no site, or an r is not a finite number.

    Example:
        >>> self_adaptive_weights({"a": 0.5, "b": 0.0, "c": 0.5})
        {'a': 0.25, 'b': 0.5, 'c': 0.25}
    """
    _check_form(form)
    if not r:
        raise FedMedError("self-adaptive weights need the similarity of at least one site; there is none")
    if not 0 <= floor <= 1 / len(r):
        raise JobError(f"floor is {floor}; {len(r)} sites share 1, so use a number from 0 to {1 / len(r):g}")
    sites = sorted(r)
    clipped = {site: _clipped(site, r[site]) for site in sites}
    shares = {site: 1 - clipped[site] if form == "gap" else math.exp(-clipped[site]) for site in sites}
    if math.fsum(shares.values()) < NO_CHANGE:
        shares = dict.fromkeys(sites, 1.0)
    # fsum is exact, so the coefficients do not depend on the order of the sites.
    total = math.fsum(shares.values())
    return _raised({site: share / total for site, share in shares.items()}, floor)


def _check_form(form: str) -> None:
    if form not in FORMS:
        raise JobError(f"'form' is {form!r}; use {' or '.join(FORMS)}")


def _clipped(site: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise FedMedError(f"similarity of site '{site}' is {value!r}; it must be a finite number from -1 to 1")
    return min(1.0, max(-1.0, float(value)))


def _raised(weights: dict[str, float], floor: float) -> dict[str, float]:
    """Lift what is below the floor to it, at the cost of the rest in proportion; again while that pushes others below.

    Each turn lifts one site at least, so there are at most as many turns as sites.
    """
    low: set[str] = set()
    while new := {site for site, weight in weights.items() if weight < floor} - low:
        low |= new
        rest = math.fsum(weight for site, weight in weights.items() if site not in low)
        scale = (1 - floor * len(low)) / rest if rest else 0.0
        weights = {site: floor if site in low else weight * scale for site, weight in weights.items()}
    return weights
