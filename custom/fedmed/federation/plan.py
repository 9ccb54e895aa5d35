"""Who takes part in which round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedmed.errors import JobError
from fedmed.federation.earlier import check_plain

TRAINING_ROLES = ("supervised", "unsupervised")
OPTIMIZER_STATES = ("persist", "reset")  # across a site's rounds


@dataclass
class Plan:
    """The controller's plain arguments, checked.

    Attributes:
        sites: site -> role, ``supervised``, ``unsupervised`` or ``evaluate``.
        rounds: number of federated rounds.
        steps: optimizer steps of each site in a round (Yang 2021: 400).
        warm_start_rounds: first rounds that unsupervised sites sit out.
        min_clients: accepted updates that a round needs; None = all its participants.
        validate_every: labelled sites score the received model every so many rounds.
        max_failed_rounds: the job stops after so many failed rounds in a row.
        task_timeout: seconds that a site may take for one task; 0 = no limit.
        evaluate_last: also score the last aggregate on the test lists, which no choice of a round has favoured.
        release_from: supervised site whose private layers score the sites that have none of their own; the site must
            allow it (``allow_release`` in its own settings).
        collapse_guard: warn when the pseudo-labels of a site collapse (see :mod:`fedmed.federation.guard`).
        job: the job's name, for the report.
        resume: id of the job that this one continues after its last good round.
        fresh: sites whose private state of that job is lost; they start it afresh.
    """

    sites: Mapping[str, str]
    rounds: int
    steps: int
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

    def __post_init__(self) -> None:
        self.sites = dict(sorted(self.sites.items()))
        for site, role in self.sites.items():
            if role not in (*TRAINING_ROLES, "evaluate"):
                raise JobError(f"site '{site}': role '{role}' is unknown; use supervised, unsupervised or evaluate")
        if not self.of_role("supervised"):
            raise JobError("no site is 'supervised'; without labels at one site at least, nothing can be learnt")
        for name in ("rounds", "steps", "validate_every", "max_failed_rounds"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise JobError(f"'{name}' is {value!r}; it must be a whole number of at least 1")
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
        return round % self.validate_every == 0
