"""Each site's coefficient in a mean, from an amount and the weight that the job gives it."""

import math
from collections.abc import Collection, Mapping

from fedmed.errors import FedMedError, JobError


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
        JobError: a site that is not among ``sites``, or a weight that is negative, not finite or not a number.
    """
    for site, weight in user_weights.items():
        if sites is not None and site not in sites:
            raise JobError(f"user weight for unknown site '{site}'; the sites are {', '.join(sorted(sites))}")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight < math.inf:
            raise JobError(f"user weight of site '{site}' is {weight!r}; give a finite number, 0 or more")
