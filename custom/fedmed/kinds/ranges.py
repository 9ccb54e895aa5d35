"""In which range a number must lie that a site reports; one that lies outside says nothing."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass

SLACK = 1e-6  # of a mean in float32, which may be a little above 1


@dataclass(frozen=True)
class Range:
    """From ``low`` to ``high``, both included; every number is finite.

    Attributes:
        whole: whether only whole numbers are meant.
    """

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False

    def holds(self, value: object) -> bool:
        """Whether a value is a number and lies in it; NaN and infinity lie in none."""
        slack = 0 if self.whole else SLACK
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            return False
        return self.low - slack <= value <= self.high + slack and not (self.whole and value != int(value))

    def __str__(self) -> str:
        """In words, after "it must be"."""
        what = "a whole number" if self.whole else "a number"
        if math.isfinite(self.high):
            return f"{what} from {self.low:g} to {self.high:g}"
        return f"{what}, {self.low:g} or more" if math.isfinite(self.low) else "a finite number"


ANY, SHARE, AMOUNT, COUNT = Range(), Range(0, 1), Range(0), Range(0, whole=True)
OF_EVERY_KIND: Mapping[str, Range] = {
    **dict.fromkeys(("seconds", "clip_norm", "noise_multiplier", "epsilon", "val_temperature"), AMOUNT),
    **dict.fromkeys(("n_cases", "n_frames", "min_cases"), COUNT),
    "delta": SHARE,
    "model_round": Range(-1, whole=True),
}
