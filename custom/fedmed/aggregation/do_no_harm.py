"""How much sites without labels may move the model, by what labelled sites saw of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedmed.errors import StateError

MARGIN = 0.01  # of a score, at any labelled site
LOWERED, RAISED = 0.5, 0.1


class DoNoHarm:
    """A weight from 0 to 1, the same for all sites without labels: halved while they do harm, raised slowly after.

    Every labelled site scores two models of the round before: with what sites without labels added, and without it.
    Where the first is worse by more than 0.01 at any of them, the weight is halved; otherwise 0.1 is added to it. Not
    the mean: a site that draws otherwise than the others can lose what these gain.
    """

    def __init__(self) -> None:
        self.weight = 1.0

    def judged(self, scores: Sequence[tuple[float, float]]) -> float:
        """Take the labelled sites' (with, without) into account, if there are some, and return the weight."""
        if scores:
            least = min(with_all - without for with_all, without in scores)
            self.weight = self.weight * LOWERED if least < -MARGIN else min(1.0, self.weight + RAISED)
        return self.weight

    def state(self) -> dict[str, Any]:
        """The weight."""
        return {"weight": self.weight}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`; ``{}`` is the start.

        Raises:
            StateError: it is not a weight.
        """
        weight = state.get("weight", 1.0)
        if not isinstance(weight, float) or not 0 <= weight <= 1:
            raise StateError(f"the kept do-no-harm weight is {weight!r}; it must be a number from 0 to 1")
        self.weight = weight
