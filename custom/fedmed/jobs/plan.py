"""Who takes part in which round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmed.methods.private_group import ALL_SITES

TRAINING_ROLES = ("supervised", "unsupervised")
ROLES = (*TRAINING_ROLES, "evaluate")
PROGRESS_LINES = 20  # of a site in a round; more would cost more than they tell
OPTIMIZER_STATES = ("persist", "reset")  # across a site's rounds


@dataclass
class Plan:
    """The controller's plain arguments; a job makes them of a study whose values were checked.

    Attributes, beside those that :class:`fedmed.jobs.study.Study` has too:
        warm_start_rounds: first rounds that unsupervised sites sit out.
        job: the job's name, for the report.
        exchange: ``names``, and ``from_round`` or ``rounds``, counted from 0: from that round on, or in these alone,
            sites first answer a ``metadata`` task with values of these names, and train with those of the other
            sites; with ``entries`` the values are tables, and only sites of the roles ``sent_by`` and ``given_to``
            send and get them, see :class:`fedmed.methods.declarations.BesideModel`. The method says it.
        method: class path and arguments of the method, see :func:`fedmed.methods.find_method.load_method`.
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
    evaluate_first: bool = False
    release_from: str | None = None
    release_weights: str = "samples"
    release_partial: bool = False
    release_keep: bool = False
    collapse_guard: bool = True
    job: str = ""
    resume: str | None = None
    fresh: Sequence[str] = ()
    epochs: float | None = None
    select: str = "best"
    mean_rounds: int = 3
    evaluate: bool = True
    exchange: Mapping[str, Any] | None = None
    method: Mapping[str, Any] | None = None
    patience: int | None = None
    min_rounds: int = 0
    max_norm_ratio: float = 1000.0
    max_samples: int = 10_000_000

    def __post_init__(self) -> None:
        self.sites = dict(sorted(self.sites.items()))

    def of_role(self, *roles: str) -> list[str]:
        """Sites with one of these roles, sorted."""
        return [site for site, role in self.sites.items() if role in roles]

    @property
    def lenders(self) -> list[str]:
        """Sites that are asked to release their private layers, sorted."""
        if self.release_from == ALL_SITES:
            return self.of_role("supervised")
        return [] if self.release_from is None else [self.release_from]

    def participants(self, round: int) -> list[str]:
        """Sites that train in a round."""
        return self.of_role("supervised") if round < self.warm_start_rounds else self.of_role(*TRAINING_ROLES)

    def needed(self, round: int) -> int:
        """Accepted updates without which the round fails."""
        present = len(self.participants(round))
        return present if self.min_clients is None else min(self.min_clients, present)

    def validates(self, round: int) -> bool:
        """Whether labelled sites score the model they receive in this round."""
        return self.select != "last" and round % self.validate_every == 0

    def exchanges(self, round: int) -> bool:
        """Whether sites answer a ``metadata`` task before they train in this round."""
        if self.exchange is None:
            return False
        rounds = self.exchange.get("rounds")
        return round >= self.exchange["from_round"] if rounds is None else round in rounds

    @property
    def told_once(self) -> bool:
        """Whether sites answer such a task in some rounds alone, and what they told stays."""
        return self.exchange is not None and "rounds" in self.exchange

    def asked(self, round: int) -> list[str]:
        """Sites that answer a ``metadata`` task; of what is told once, also those that train only later."""
        sites = self.of_role(*TRAINING_ROLES) if self.told_once else self.participants(round)
        return [site for site in sites if self.tells(self.sites[site])]

    def tells(self, role: str) -> bool:
        """Whether sites of a role answer such a task."""
        return self.exchange is not None and self.exchange.get("sent_by", role) == role in TRAINING_ROLES

    def told(self, site: str) -> bool:
        """Whether a site gets what others answer to it."""
        given = (self.exchange or {}).get("given_to", TRAINING_ROLES)
        roles = [given] if isinstance(given, str) else given  # one role, in runs of FedMed 0.1
        return self.exchange is not None and self.sites[site] in roles

    @property
    def told_when_scored(self) -> list[str]:
        """Sites that never train and get with a model to score what others told."""
        return [site for site in self.of_role("evaluate") if self.told(site)]
