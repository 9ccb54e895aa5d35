"""Weighting by a positive number that each site reports beside its update."""

from collections.abc import Callable, Mapping, Sequence

from fedmed.aggregation.acceptance import MOST
from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.weighted_mean import SampleWeighting, Weighting
from fedmed.errors import JobError, UpdateRefused


class ReportedWeighting(Weighting):
    """Weighting by a positive number that each site reports, such as the trace of its Fisher information.

    A site decides itself how much it counts: one that reports a number a thousand times the others' is nearly alone.
    ``most`` bounds what is taken. Where a site does not report it, because its own settings do not allow it, the round
    is weighed by samples.

    Args:
        name: of the value, among the values beside the model that a site sends.
        most: largest number that is taken.

    Raises:
        JobError: a name or a number that cannot be meant.
    """

    kind = "reported"

    def __init__(self, name: str, most: float = MOST) -> None:
        if not isinstance(name, str) or not name:
            raise JobError(f"weighting '{self.kind}': 'name' is {name!r}; give the name of a value that sites send")
        if type(most) not in (int, float) or not 0 < most <= MOST:
            raise JobError(f"weighting '{self.kind}': 'most' is {most!r}; give a number above 0, at most {MOST:,}")
        self.name, self.most, self.wanted = name, most, f"'{name}'"

    def out_of_range(self, value: float) -> str | None:
        """Return what the number must be, in words, if it is not; NaN is in no range."""
        return None if 0 < value <= self.most else f"above 0, at most {self.most:,}"

    def check_update(self, update: Contribution) -> None:
        """Refuse a value that is not a number, or out of range: it decides how much the site counts."""
        if self.known(update):
            check_number(update, self.name, self.out_of_range)

    def known(self, update: Contribution) -> bool:
        return self.name in update.extras

    def instead(self) -> Weighting:
        return SampleWeighting()

    def of_trained(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        return {update.site: float(update.extras[self.name]) for update in updates}


def check_number(update: Contribution, name: str, out_of_range: Callable[[float], str | None]) -> None:
    """Refuse a value beside an update that is not a number, or out of range.

    Args:
        update: it has the value; UpdateRefused names its site and the value.
        name: of the value.
        out_of_range: tells what the number must be, in words, if it is not; gets NaN for what is not a number.
    """
    value = update.extras[name]
    number = type(value) in (int, float)
    if wanted := out_of_range(value if number else float("nan")):
        shown = repr(value) if number else f"a {type(value).__name__}"
        raise UpdateRefused(update.site, f"its '{name}' is {shown}; it must be a number {wanted}")
