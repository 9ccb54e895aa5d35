"""Who sends a tensor, and how much each of them counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedmed.aggregation.contribution import Contribution


@dataclass(frozen=True)
class Senders:
    """Senders of a tensor, in order of site names.

    Attributes:
        updates: theirs.
        weights: coefficient of each, not 0.
        scales: what clipping leaves of each update, [0, 1].
    """

    updates: Sequence[Contribution]
    weights: Sequence[float]
    scales: Sequence[float]

    def differences(self, name: str) -> list[Tensor]:
        """Their differences of a tensor, as they were sent."""
        return [update.tensors[name] for update in self.updates]


class SenderTable:
    """Finds the senders of a tensor; each set of senders is weighed once.

    Args:
        updates: of one round, sorted by site.
        coefficients: gives site -> coefficient of some updates, of which one at least counts.
        user_weights: site -> weight; a site without one counts with 1.
        scales: site -> what clipping leaves of its update.
    """

    def __init__(
        self,
        updates: Sequence[Contribution],
        coefficients: Callable[[Sequence[Contribution]], Mapping[str, float]],
        user_weights: Mapping[str, float],
        scales: Mapping[str, float],
    ) -> None:
        self._updates, self._coefficients = updates, coefficients
        self._user_weights, self._scales = user_weights, scales
        self._known: dict[tuple[str, ...], Senders] = {}

    def of(self, name: str) -> Senders:
        """Return who counts for a tensor; nobody if none of its senders does."""
        sent = [update for update in self._updates if name in update.tensors]
        key = tuple(update.site for update in sent)
        if key not in self._known:
            self._known[key] = self._weigh(sent)
        return self._known[key]

    def _weigh(self, sent: list[Contribution]) -> Senders:
        # Senders that all have weight 0 (no steps, or a user weight of 0) leave the tensor as it is.
        if not any(update.n_steps * self._user_weights.get(update.site, 1.0) for update in sent):
            return Senders([], [], [])
        weights = self._coefficients(sent)
        counted = [update for update in sent if weights[update.site]]
        sites = [update.site for update in counted]
        return Senders(counted, [weights[site] for site in sites], [self._scales[site] for site in sites])
