"""How much sites without labels may move the model, by what labelled sites saw of it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedmed.errors import StateError

MARGIN = 0.005  # of a score: less than what a validation list of a few cases can tell
LOWERED, RAISED = 0.5, 0.1


class DoNoHarm:
    """A weight from 0 to 1, the same for all sites without labels: halved while they do harm, raised slowly after.

    Every labelled site scores two models of the round before: with what sites without labels added, and without it.
    Where the first is worse in the mean, the weight is halved; otherwise 0.1 is added to it.
    """

    def __init__(self) -> None:
        self.weight = 1.0

    def judged(self, scores: Sequence[tuple[float, float]]) -> float:
        """Take the labelled sites' (with, without) into account, if there are some, and return the weight."""
        if scores:
            gain = math.fsum(with_all - without for with_all, without in scores) / len(scores)
            self.weight = self.weight * LOWERED if gain < -MARGIN else min(1.0, self.weight + RAISED)
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
