"""Who takes part in which round."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmed.errors import JobError
from fedmed.jobs.job_id import check_plain

TRAINING_ROLES = ("supervised", "unsupervised")
ROLES = (*TRAINING_ROLES, "evaluate")
PROGRESS_LINES = 20  # of a site in a round; more would cost more than they tell
OPTIMIZER_STATES = ("persist", "reset")  # across a site's rounds
SELECTIONS = ("best", "last")
EXCHANGE = '"exchange": {"from_round": 50, "names": ["mu", "sigma", "n"]}'


@dataclass
class Plan:
    """The controller's plain arguments, checked.

    Attributes:
        sites: site -> role, ``supervised``, ``unsupervised`` or ``evaluate``.
        rounds: number of federated rounds.
        steps: optimizer steps of each site in a round (Yang 2021: 400); or
        epochs: passes of each site over its own training images in a round. Exactly one of the two is given.
        warm_start_rounds: first rounds that unsupervised sites sit out.
        min_clients: accepted updates that a round needs; None = all its participants.
        validate_every: labelled sites score the received model every so many rounds.
        max_failed_rounds: the job stops after so many failed rounds in a row.
        task_timeout: seconds that a site may take for one task; 0 = no limit.
        evaluate_last: also score the last aggregate on the test lists, which no choice of a round has favoured.
        release_from: supervised site whose private layers score the sites that have none of their own; the site must
            allow it (``allow_release`` in its own settings).
        collapse_guard: warn when pseudo-labels or contrastive features of a site collapse (see
            :mod:`fedmed.federation.guards`).
        job: the job's name, for the report.
        select: ``best``: the model that labelled sites score best is the result; ``last``: the last aggregate is, no
            site validates, and none needs labels.
        evaluate: whether sites score the result on their testing lists.
        exchange: ``from_round``, counted from 0, and ``names``: from that round on sites first answer a ``metadata``
            task with values of these names, and train with those of the other sites.
        patience: the run ends when so many models in a row are scored no better than the best one before; None = never.
            With ``validate_every`` models are scored every so many rounds.
        min_rounds: rounds that are trained before that, at least.
        resume: id of the job that this one continues after its last good round.
        fresh: sites whose private state of that job is lost; they start it afresh.
    """

    sites: Mapping[str, str]
    rounds: int
    steps: int | None = None
    warm_start_rounds: int = 0
    min_clients: int | None = None
    validate_every: int = 1
    max_failed_rounds: int = 2
    task_timeout: int = 0
    evaluate_last: bool = False
    release_from: str | None = None
    collapse_guard: bool = True
    job: str = ""
    resume: str | None = None
    fresh: Sequence[str] = ()
    epochs: float | None = None
    select: str = "best"
    evaluate: bool = True
    exchange: Mapping[str, Any] | None = None
    patience: int | None = None
    min_rounds: int = 0

    def __post_init__(self) -> None:
        self.sites = dict(sorted(self.sites.items()))
        for site, role in self.sites.items():
            if role not in ROLES:
                raise JobError(f"site '{site}': role '{role}' is unknown; use supervised, unsupervised or evaluate")
        self._check_result()
        self._check_length()
        self._check_patience()
        check_exchange(self.exchange)
        if not 0 <= self.warm_start_rounds <= self.rounds:
            raise JobError(f"'warm_start_rounds' is {self.warm_start_rounds}; it must lie in 0…{self.rounds}")
        if self.release_from is not None and self.release_from not in self.of_role("supervised"):
            known = ", ".join(self.of_role("supervised"))
            raise JobError(f"'release_from' is '{self.release_from}'; it must be a supervised site: {known}")
        if self.resume is not None:
            check_plain(self.resume)
        if lost := [site for site in self.fresh if site not in self.of_role(*TRAINING_ROLES)]:
            raise JobError(f"'fresh' names '{lost[0]}', which is no site that trains in this job")
        if self.fresh and self.resume is None:
            raise JobError("'fresh' is for a job that continues another one; name that in 'resume'")
        n_training = len(self.of_role(*TRAINING_ROLES))
        if self.min_clients is not None and not 1 <= self.min_clients <= n_training:
            raise JobError(f"'min_clients' is {self.min_clients}; the job has {n_training} training sites")

    def _check_result(self) -> None:
        if self.select not in SELECTIONS:
            raise JobError(f"'select' is {self.select!r}; use {' or '.join(SELECTIONS)}")
        if not self.of_role(*TRAINING_ROLES):
            raise JobError("no site trains; at least one must be 'supervised' or 'unsupervised'")
        if not self.of_role("supervised"):
            why = "no site is 'supervised', and without labels at one site at least"
            if self.select == "best":
                raise JobError(f"{why}, no model can be chosen; use 'select': 'last' for a method without labels")
            if self.warm_start_rounds:
                raise JobError(f"{why}, nobody trains in the warm start; set 'warm_start_rounds' to 0")
        if self.evaluate_last and (self.select == "last" or not self.evaluate):
            raise JobError(
                "'evaluate_last' needs 'select': 'best' and 'evaluate'; else there is no other model to test"
            )

    def _check_length(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise JobError("give either 'steps' or 'epochs', the length of a round at a site")
        counts = ("rounds", *(() if self.steps is None else ("steps",)), "validate_every", "max_failed_rounds")
        for name in counts:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise JobError(f"'{name}' is {value!r}; it must be a whole number of at least 1")
        epochs = self.epochs
        if epochs is not None and (type(epochs) not in (int, float) or not 0 < epochs < math.inf):
            raise JobError(f"'epochs' is {epochs!r}; it must be a number above 0")

    def _check_patience(self) -> None:
        patience, least = self.patience, self.min_rounds
        if patience is not None and (type(patience) is not int or patience < 1):
            raise JobError(f"'patience' is {patience!r}; give a number of models, at least 1, or leave it out")
        if patience is not None and self.select != "best":
            raise JobError("'patience' waits for better scores, which only 'select': 'best' asks for")
        if type(least) is not int or not 0 <= least <= self.rounds:
            raise JobError(f"'min_rounds' is {least!r}; it must be a whole number in 0…{self.rounds}")
        if least and patience is None:
            raise JobError("'min_rounds' is for a run that may end early; give 'patience' too, or leave it out")

    def of_role(self, *roles: str) -> list[str]:
        """Sites with one of these roles, sorted."""
        return [site for site, role in self.sites.items() if role in roles]

    def participants(self, round: int) -> list[str]:
        """Sites that train in a round."""
        return self.of_role("supervised") if round < self.warm_start_rounds else self.of_role(*TRAINING_ROLES)

    def needed(self, round: int) -> int:
        """Accepted updates without which the round fails."""
        present = len(self.participants(round))
        return present if self.min_clients is None else min(self.min_clients, present)

    def validates(self, round: int) -> bool:
        """Whether labelled sites score the model they receive in this round."""
        return self.select == "best" and round % self.validate_every == 0

    def exchanges(self, round: int) -> bool:
        """Whether sites answer a ``metadata`` task before they train in this round."""
        return self.exchange is not None and round >= self.exchange["from_round"]


def check_exchange(exchange: Any) -> None:
    """Refuse a plan's ``exchange`` that is none.

    Raises:
        JobError: says what it must hold.
    """
    if exchange is None:
        return
    plain = isinstance(exchange, Mapping) and set(exchange) == {"from_round", "names"}
    start, names = (exchange["from_round"], exchange["names"]) if plain else (None, None)
    if type(start) is not int or start < 0:
        raise JobError(f"'exchange' is {exchange!r}; it needs a first round, 0 or more, and names, such as {EXCHANGE}")
    words = isinstance(names, list | tuple) and all(isinstance(name, str) and name for name in names)
    if not words or not names or len(set(names)) != len(names):
        raise JobError(f"'exchange.names' is {names!r}; it must list each name once, such as {EXCHANGE}")
