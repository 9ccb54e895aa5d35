"""A mean, and for each site the weights of the sites whose models answer most like its own (Jeong et al. 2021)."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.rule import ExpectedSenders, Model, Outcome, RoundFacts
from fedmed.aggregation.weighted_mean import FIRST, WeightedMean
from fedmed.errors import JobError, UpdateRefused

ANSWER, HELPERS = "noise_answer", "helpers"  # what sites send beside an update; what goes with their next task


class MeanWithHelpers:
    """The mean of all sites; every some rounds sites without labels get what the nearest of them have trained.

    A rule, see :class:`fedmed.aggregation.rule.ServerRule`. Near are sites whose models give similar probabilities for
    one picture of noise, by the Euclidean distance. A site that does not send its answer has no helpers and helps
    nobody: nothing of it reaches another site but by the mean.

    Args:
        mean: of the updates; None: weighted by steps.
        helpers: how many a site gets, at least 1; fewer where there are not so many.
        every: rounds after which they are chosen anew, counted from the first; at least 1.

    Raises:
        JobError: a number out of range.
    """

    def __init__(self, mean: WeightedMean | None = None, helpers: int = 2, every: int = 10) -> None:
        check_helpers(helpers, every)
        self.mean, self.helpers, self.every = mean or WeightedMean(), helpers, every

    def check(self, senders: ExpectedSenders) -> None:
        self.mean.check(senders)

    def check_update(self, update: Contribution) -> None:
        """Refuse an answer that cannot be meant; a site may have added noise to it."""
        self.mean.check_update(update)
        answer = update.extras.get(ANSWER)
        fits = isinstance(answer, Tensor) and answer.ndim == 1 and bool(((answer >= -1) & (answer <= 2)).all())
        if answer is not None and not fits:
            raise UpdateRefused(update.site, f"its '{ANSWER}' must be a list of numbers from 0 to 1")

    def state(self) -> dict[str, Any]:
        return self.mean.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self.mean.restore(state)

    def aggregate(self, model: Model, updates: Sequence[Contribution], facts: RoundFacts = FIRST) -> Outcome:
        """Return the next model, and helpers where it is time for them; see :class:`ServerRule`."""
        outcome = self.mean.aggregate(model, updates, facts)
        if facts.round % self.every:
            return outcome
        others = [u for u in sorted(updates, key=lambda u: u.site) if facts.roles.get(u.site) == "unsupervised"]
        answering = {update.site: update for update in others if ANSWER in update.extras}
        chosen = nearest({site: update.extras[ANSWER] for site, update in answering.items()}, self.helpers)
        outcome.values = {
            site: {HELPERS: [_trained(model, answering[helper]) for helper in names]} for site, names in chosen.items()
        }
        outcome.facts |= {"helpers": chosen} if chosen else {}
        if silent := [update.site for update in others if update.site not in answering]:
            reason = f"does not send '{ANSWER}' (privacy.allowed_extras in its settings); it has no helpers and is none"
            outcome.warnings.append((silent, reason))
        return outcome


def check_helpers(helpers: int, every: int) -> None:
    """Raise a JobError unless helpers, and rounds between two choices of them, are whole numbers from 1 on."""
    for name, value in (("helpers", helpers), ("every", every)):
        if type(value) is not int or value < 1:
            raise JobError(f"'{name}' is {value!r}; give a whole number from 1 on")


def nearest(answers: Mapping[str, Tensor], count: int) -> dict[str, list[str]]:
    """Site -> the sites whose answers are nearest to its own, nearest first, equally near ones by name; never itself.

    Args:
        answers: site -> numbers (C,); one of another length than the first site's has no neighbours.
        count: how many at most.
    """
    lengths = {site: len(answer) for site, answer in sorted(answers.items())}
    known = [site for site in lengths if lengths[site] == next(iter(lengths.values()))]
    neighbours = {}
    for site in known:
        away = {other: float((answers[site] - answers[other]).double().norm()) for other in known if other != site}
        neighbours[site] = sorted(away, key=lambda other: (away[other], other))[:count]
    return {site: names for site, names in neighbours.items() if names}


def _trained(model: Model, update: Contribution) -> dict[str, Tensor]:
    return {name: model[name] + difference for name, difference in update.tensors.items()}
