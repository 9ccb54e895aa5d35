"""Which round's model is kept: the one that labelled sites score best on their validation lists."""

import math
from collections.abc import Collection, Mapping

from torch import Tensor


class ModelSelection:
    """Keep the aggregate with the best mean validation score over the labelled sites.

    A model is only compared when every selecting site scored it: means over different sites say nothing.

    Args:
        sites: the labelled sites whose scores count.

    Attributes:
        best_round: the aggregate after this round is the best so far; -1: the starting model, None: none scored.
    """

    def __init__(self, sites: Collection[str]) -> None:
        self.sites = sorted(sites)
        self.best_round: int | None = None
        self.best_score = -math.inf
        self.best_tensors: Mapping[str, Tensor] | None = None

    def score(self, scores: Mapping[str, float]) -> float | None:
        """Mean over the selecting sites; None if one of them sent no score, or absurd ones have no finite mean."""
        if not self.sites or any(site not in scores for site in self.sites):
            return None
        mean = sum(scores[site] for site in self.sites) / len(self.sites)
        return mean if math.isfinite(mean) else None

    def offer(self, round: int, score: float | None, tensors: Mapping[str, Tensor]) -> bool:
        """Keep ``tensors`` (the aggregate after ``round``) if its score is the best; on a tie the earlier one stays."""
        if score is None or score <= self.best_score:
            return False
        self.best_round, self.best_score, self.best_tensors = round, score, tensors
        return True
