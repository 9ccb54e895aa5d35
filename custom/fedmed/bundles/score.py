"""The score by which a bundle's models are compared, under the names that its engines and recorders use."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fedmed.errors import BundleError

EXAMPLE = "score: {name: dice, label: Dice, test: dice_mean, spread: dice_std}"


@dataclass(frozen=True)
class Score:
    """A score in 0..1, the higher the better; one that no model is chosen by may have another range.

    Attributes:
        name: the metric of a validation list is ``val_<name>``.
        label: what a person reads.
        test: the metric of a testing list.
        spread: its standard deviation over cases, of a score that every case has.
        low, high: its 95 % interval, of a score that only a whole list has.
    """

    name: str
    label: str
    test: str
    spread: str | None = None
    low: str | None = None
    high: str | None = None

    @property
    def validation(self) -> str:
        """The metric of a validation list."""
        return f"val_{self.name}"

    @property
    def tested(self) -> list[str]:
        """The metrics of a testing list that belong to the score."""
        return [metric for metric in (self.test, self.spread, self.low, self.high) if metric]

    def facts(self) -> dict[str, str]:
        """Plain values, as in ``run.json``."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    def text(self, metrics: Mapping[str, float]) -> str:
        """``Dice 0.8123 ± 0.0456`` or ``AUROC 0.91 (0.85 to 0.96)`` of a testing list."""
        text = f"{self.label} {metrics[self.test]:.4f}" if self.test in metrics else f"no {self.label}"
        if self.spread and self.spread in metrics:
            text += f" ± {metrics[self.spread]:.4f}"
        if self.low and self.high and {self.low, self.high} <= metrics.keys():
            text += f" ({metrics[self.low]:.4f} to {metrics[self.high]:.4f})"
        return text


HD95 = Score("hd95", "HD95 (mm)", "hd95_median")  # beside it, in millimetres: the lower the better
DICE = Score("dice", "Dice", "dice_mean", "dice_std")  # of bundles and runs that do not say theirs


def parse_score(values: Any, path: Path) -> Score:
    """Read a bundle's ``score``; without one it is Dice.

    Raises:
        BundleError: an unknown or missing key, or a value that is not a word.
    """
    if values is None:
        return DICE
    known = [f.name for f in fields(Score)]
    needed = known[:3]
    if not isinstance(values, Mapping) or set(values) - set(known) or set(needed) - set(values):
        raise BundleError(
            f"{path}: 'score' needs {', '.join(needed)} and may have {', '.join(known[3:])}. Example:\n    {EXAMPLE}"
        )
    if bad := [key for key, value in values.items() if not isinstance(value, str) or not value]:
        raise BundleError(f"{path}: 'score.{bad[0]}' is {values[bad[0]]!r}; it must be a word. Example:\n    {EXAMPLE}")
    return Score(**values)
