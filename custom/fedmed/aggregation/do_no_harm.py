"""How much sites without labels may move the model, by what labelled sites saw of it."""

from collections.abc import Mapping
from typing import Any

from fedmed.errors import StateError

REMEMBERED = 0.5  # of what was seen in the rounds before; a validation list of few patients says little in one round
MARGIN = 0.02  # of a score, at any one labelled site
LOWERED, RAISED = 0.5, 0.1


class DoNoHarm:
    """A weight from 0 to 1, the same for all sites without labels: halved while they do harm, raised slowly after.

    Every labelled site scores two models of the round before: with what sites without labels added, and without it. The
    server keeps the difference of each, half of it from the rounds before. Where the mean over sites is negative, or
    one site's is below -0.02, the weight is halved; otherwise 0.1 is added to it. The second is for a site that draws
    otherwise than the others and loses what these gain.
    """

    def __init__(self) -> None:
        self.weight = 1.0
        self.gains: dict[str, float] = {}  # site -> with minus without, over the rounds

    def judged(self, scores: Mapping[str, tuple[float, float]]) -> float:
        """Take the labelled sites' (with, without) into account, if there are some, and return the weight."""
        for site, (with_all, without) in scores.items():
            gain = with_all - without
            self.gains[site] = gain + REMEMBERED * (self.gains.get(site, gain) - gain)
        if found := [self.gains[site] for site in scores]:
            harm = sum(found) < 0 or min(found) < -MARGIN
            self.weight = self.weight * LOWERED if harm else min(1.0, self.weight + RAISED)
        return self.weight

    def state(self) -> dict[str, Any]:
        """The weight, and what was seen of each site."""
        return {"weight": self.weight, "gains": dict(self.gains)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`; ``{}`` is the start.

        Raises:
            StateError: it is not a weight, or not differences of scores.
        """
        weight, gains = state.get("weight", 1.0), state.get("gains", {})
        if not isinstance(weight, float) or not 0 <= weight <= 1:
            raise StateError(f"the kept do-no-harm weight is {weight!r}; it must be a number from 0 to 1")
        if not isinstance(gains, dict) or not all(
            isinstance(gain, float) and -1 <= gain <= 1 for gain in gains.values()
        ):
            raise StateError(f"the kept gains of the labelled sites are {gains!r}; each must be a number from -1 to 1")
        self.weight, self.gains = weight, dict(gains)
