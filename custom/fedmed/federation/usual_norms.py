"""Whether an update is absurdly large: beside those of the other sites, and those of the site's own earlier rounds."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median, median_low

from fedmed.errors import UpdateRefused

LARGEST_RATIO = 1000.0  # unless a study says otherwise
REMEMBERED = 20  # rounds of a site


class UsualNorms:
    """Bounds the L2 norm of each update by what is usual in the run; a site that is merely unlike the others passes.

    The bound of a site is ``ratio`` times the larger of two medians: that of the other sites' updates of the round
    (of an even number the lower one, so that of two sites the larger cannot vouch for itself), and that of the site's
    own updates of earlier rounds. Norms of 0 say nothing. Where neither is known, as for a site alone in its first
    round, the norm of the model stands for them. An update no larger than the model itself always passes: others that
    have hardly begun to learn make nobody absurd.

    Args:
        ratio: how many times the usual norm an update may have, 1 or more.

    Attributes:
        earlier: site -> norms of its updates that entered the model, the latest rounds' at most.
    """

    def __init__(self, ratio: float = LARGEST_RATIO) -> None:
        self.ratio = ratio
        self.earlier: dict[str, list[float]] = {}

    def refusals(self, norms: Mapping[str, float], model_norm: Callable[[str], float]) -> list[UpdateRefused]:
        """Say which updates of a round are too large, whatever the order in which they came.

        Args:
            norms: site -> norm of its update, finite.
            model_norm: site -> norm of the tensors that its update changes; asked only where it decides.
        """
        found = []
        for site, norm in sorted(norms.items()):
            usual = self._usual(site, norms) or model_norm(site)
            if usual and norm > self.ratio * usual and norm > model_norm(site):
                reason = (
                    f"the norm of its differences is {norm:.4g}, {norm / usual:.3g} times the usual {usual:.4g}; the "
                    f"study's 'max_norm_ratio' takes {self.ratio:g} times"
                )
                found.append(UpdateRefused(site, reason))
        return found

    def _usual(self, site: str, norms: Mapping[str, float]) -> float:
        others = [norm for other, norm in norms.items() if other != site and norm > 0]
        own = [norm for norm in self.earlier.get(site, ()) if norm > 0]
        return max(median_low(others) if others else 0.0, median(own) if own else 0.0)

    def keep(self, norms: Mapping[str, float]) -> None:
        """Remember the updates that entered the model."""
        for site, norm in norms.items():
            self.earlier[site] = [*self.earlier.get(site, ()), norm][-REMEMBERED:]

    def state(self) -> dict[str, list[float]]:
        """Plain values from which :meth:`restore` goes on."""
        return {site: list(norms) for site, norms in self.earlier.items()}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Inverse of :meth:`state`; ``{}`` is the start."""
        self.earlier = {site: [norm for norm in norms if math.isfinite(norm)] for site, norms in state.items()}
