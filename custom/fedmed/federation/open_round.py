"""A round at the server: what is sent, taken, and aggregated by the rule, whole or not at all."""

import copy
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from fedmed.aggregation.acceptance import all_finite, check_update
from fedmed.aggregation.rule import ExpectedSenders, Model, Outcome, RoundFacts, ServerRule
from fedmed.aggregation.sharing import tensor_bytes
from fedmed.class_paths import class_path
from fedmed.errors import FedMedError, JobError, StateError, UpdateRefused
from fedmed.federation.server_training import ServerTraining, Trained
from fedmed.jobs.job import Job, RolePolicies
from fedmed.jobs.study import Study
from fedmed.messages.answers import Update, extras_bytes
from fedmed.messages.task import Task
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.moved_classes import FINISH, hint
from fedmed.recovery.model_store import ModelStore

RESERVED = "others"  # what sites tell one another goes to a site under this name, see exchange.py
log = logging.getLogger("fedmed.server")


class TransactionalAggregator:
    """A rule with what its last good round left.

    Attributes:
        outcome: of the current round, None until the round is good.
        for_roles: role -> tensors that its sites train from instead of the model's.
        values: site -> values that go with its next task to train.
        training: of the mean at the server, None where there is none.
        trained: numbers of the current round's.
    """

    def __init__(self, rule: ServerRule, study: Study) -> None:
        self.rule, self.study = rule, study
        self.outcome: Outcome | None = None
        self.for_roles: Mapping[str, Model] = {}
        self.values: Mapping[str, Mapping[str, Any]] = {}
        self.training: ServerTraining | None = None
        self.trained: Mapping[str, float] = {}

    def check(self, policies: RolePolicies, model: Model) -> None:
        """Ask the rule whether every kind of round has the senders that it needs, if all sites answer.

        Raises:
            JobError: names the round.
        """
        study = self.study
        for round in sorted({0, min(study.warm_start.rounds, study.rounds - 1)}):
            sites = study.participants(round)
            sent = {site: policies.of(study.sites[site], round).sent(model) for site in sites}
            try:
                self.rule.check(ExpectedSenders(study.sites, sent, study.max_norm))
            except JobError as error:
                raise JobError(f"round {round}: {error}") from error

    def begin(self) -> None:
        """Forget the outcome of the round before; what it left for tasks stays."""
        self.outcome, self.trained = None, {}

    def aggregate(
        self, model: Model, updates: Sequence[Update], round: int, save: Callable[[Model], None]
    ) -> dict[str, Tensor]:
        """Return the next model after ``save`` has kept it; on any failure rule and training are as they were before.

        Raises:
            FedMedError: the rule refused the round, or made something of it that does not fit the job.
            StateError: the model cannot be kept.
        """
        before = copy.deepcopy(self.rule.state())
        try:
            outcome = self.rule.aggregate(model, updates, RoundFacts(round, self.study.rounds, self.study.sites))
            self._check(outcome, model)
            kept = None
            if self.training is not None:
                outcome, kept = self._train(self.training, outcome, round)
                self._check(outcome, model)
            save(outcome.tensors)
        except Exception:
            self.rule.restore(before)
            raise
        if self.training is not None and kept is not None:
            self.training.restore(kept.state)
            self.trained = kept.facts
        self.outcome, self.for_roles, self.values = outcome, outcome.for_roles, outcome.values
        return outcome.tensors

    def _train(self, training: ServerTraining, outcome: Outcome, round: int) -> tuple[Outcome, Trained]:
        if outcome.for_roles:
            raise FedMedError("training at the server needs one model for all, and the rule has some of roles' own")
        trained = training.train(outcome.tensors, round)
        return replace(outcome, tensors=trained.tensors, facts={**outcome.facts, **trained.facts}), trained

    def model_for(self, role: str, model: Model) -> Model:
        """Model from which sites of a role train."""
        return {**model, **self.for_roles[role]} if role in self.for_roles else model

    def fill(self, task: Task, site: str) -> Task:
        """Add the rule's values for a site to its task to train."""
        if site in self.values:
            task.extras = {**task.extras, **self.values[site]}
        return task

    def state(self) -> dict[str, Any]:
        """State that must be saved with the model; ``{}`` where there is none.

        ``rule`` is the class path, ``state`` the rule's own, ``for_roles`` and ``values`` what it left for tasks, and
        ``training`` that of a server that trains.
        """
        state, training = self.rule.state(), dict(self.training.state()) if self.training else {}
        if not (state or self.for_roles or self.values or training):
            return {}
        for_roles = {role: dict(tensors) for role, tensors in self.for_roles.items()}
        further = {"for_roles": for_roles, "values": {site: dict(of_site) for site, of_site in self.values.items()}}
        return {"rule": class_path(self.rule), "state": state, **further, "training": training}

    def restore(self, state: Mapping[str, Any], model: Model) -> None:
        """Go on from :meth:`state`, which was saved with ``model``.

        Raises:
            StateError: it is of another rule, or does not fit this job.
        """
        if self.training is not None and not state.get("training"):
            raise StateError("the run to resume holds nothing of the server's training; start a new run of this job")
        if not state:
            return
        theirs, ours = state["rule"], class_path(self.rule)
        if theirs != ours:
            advice = "continue with the job that made it, or start a new run"
            other = f"the kept state is of the rule {theirs}, this job's rule is {ours}; {advice}"
            raise StateError(hint(theirs, FINISH) or other)
        try:
            self.rule.restore(state["state"])
            for_roles = dict(state["for_roles"])
            values = {site: dict(of_site) for site, of_site in state["values"].items()}
            self._check(Outcome(dict(model), for_roles=for_roles, values=values), model)
        except FedMedError as error:
            raise StateError(f"the kept state of rule {theirs} does not fit this job: {error}") from error
        self.for_roles, self.values = for_roles, values
        if self.training is not None:
            self.training.restore(state["training"])

    def _check(self, outcome: Outcome, model: Model) -> None:
        if outcome.tensors.keys() != model.keys():
            odd = sorted(outcome.tensors.keys() ^ model.keys())
            raise FedMedError(f"the rule returned another model: tensor '{odd[0]}' is in one of the two alone")
        for role in outcome.for_roles:
            if role not in TRAINING_ROLES or (role == "supervised" and self.study.select != "last"):
                why = "which does not train" if role not in TRAINING_ROLES else "whose scores choose the model"
                raise FedMedError(f"the rule has another model for the role '{role}', {why}; that cannot be")
        for tensors in (outcome.tensors, *outcome.for_roles.values()):
            _check_fit(tensors, model)
        for site, values in outcome.values.items():
            if site not in self.study.sites or RESERVED in values or not all(isinstance(name, str) for name in values):
                raise FedMedError(f"the rule's values for '{site}' are not values of this job's sites: {list(values)}")


def _check_fit(tensors: Model, model: Model) -> None:
    for name, tensor in tensors.items():
        if name not in model or tensor.shape != model[name].shape or tensor.dtype != model[name].dtype:
            raise FedMedError(f"the rule returned tensor '{name}' otherwise than it is in the model")
        if not all_finite(tensor):
            raise FedMedError(f"the rule returned tensor '{name}' with values that are NaN or infinite")


class OpenRound:
    """One round.

    Args:
        number: counted from 0.

    Attributes:
        updates: site -> its accepted update; ``norms``: the L2 norm of each.
        wrong: (site, what is wrong with a number that it reported).
        refused: site -> why there is no update of it.
        bytes_down: of all tasks; ``bytes_extras``: of these the values beside the model.
        awaits_training: it has begun with another task, and trains nobody yet.
    """

    def __init__(self, number: int) -> None:
        self.number, self.started = number, time.monotonic()
        self.updates: dict[str, Update] = {}
        self.norms: dict[str, float] = {}
        self.wrong: list[tuple[str, str]] = []
        self.refused: dict[str, str] = {}
        self.bytes_down = self.bytes_extras = 0
        self.awaits_training = False

    def sent(self, tasks: Mapping[str, Task]) -> None:
        """Count what goes down."""
        extras = sum(extras_bytes(task.extras) for task in tasks.values())
        self.bytes_extras += extras
        self.bytes_down += extras + sum(tensor_bytes(task.tensors) for task in tasks.values())

    def take(self, update: Update, norm: float, wrong: Sequence[str] = ()) -> None:
        """Keep an accepted update for the end of the round, and what is wrong with its numbers."""
        self.updates[update.site], self.norms[update.site] = update, norm
        self.wrong += [(update.site, text) for text in wrong]

    def drop(self, error: UpdateRefused) -> None:
        """Refuse an update after all, that was taken before the others came."""
        del self.updates[error.site], self.norms[error.site]
        self.refuse(error)

    def refuse(self, error: UpdateRefused) -> None:
        """Note why there is no update of a site; one that was accepted before stays."""
        log.warning("round %d: %s", self.number, error)
        if error.site not in self.updates:
            self.refused[error.site] = f"{error.tensor}: {error.reason}" if error.tensor else error.reason


class UpdateCheck:
    """Conditions under which an update is taken."""

    def __init__(self, study: Study, policies: RolePolicies, applied: TransactionalAggregator) -> None:
        self.study, self.policies, self.applied = study, policies, applied

    def __call__(self, update: Update, model: Mapping[str, Tensor], current: OpenRound) -> float:
        """Check one update of the round; return the L2 norm of its differences.

        Raises:
            UpdateRefused: names the site, the tensor and the reason.
        """
        if update.site not in self.study.participants(current.number):
            raise UpdateRefused(update.site, f"the site does not train in round {current.number}")
        policy = self.policies.of(self.study.sites[update.site], current.number)
        expected = {name: model[name] for name in policy.sent(model)}
        norm = check_update(update, expected, current.number, set(current.updates), self.study.max_norm)
        if self.study.steps is not None and update.n_steps > self.study.steps:
            # It would weigh more than it was asked for. Of epochs only the site knows the steps.
            raise UpdateRefused(update.site, f"{update.n_steps} steps reported, {self.study.steps} asked for")
        self.applied.rule.check_update(update)
        return norm


class TaskMaker:
    """Makes tasks from the job's study and sharing policies."""

    def __init__(self, job: Job, store: ModelStore, policies: RolePolicies) -> None:
        self.study, self.digest, self.store, self.policies = job.study, job.digest, store, policies
        self.earlier: dict[str, int] = {}  # of a resumed run, see Task

    def make(
        self,
        name: str,
        site: str,
        round: int,
        tensors: Mapping[str, Tensor],
        private_round: int | None,
        keep_rounds: Sequence[int] = (),
    ) -> Task:
        """Make one site's task.

        Args:
            name: ``train``, ``metadata``, ``validate`` or ``evaluate``.
            round: the round to train, or the one whose aggregate is scored (-1: the starting model).
            tensors: the whole model; the site gets what its role receives.
            private_round: round of the private state that the site continues, or None.
        """
        role = self.study.sites[site]
        received = [*self.policies.of(role, round).received(tensors), *self.start_names(role, private_round, round)]
        scored = name != "metadata" and role == "supervised" and self.study.validates(round)
        return Task(
            name=name,
            round=round,
            total_rounds=self.study.rounds,
            tensors={n: tensors[n] for n in received},
            steps=self.study.steps or 0 if name == "train" else 0,
            epochs=self.study.epochs if name == "train" else None,
            bundle_digest=self.store.bundle.digest,
            study=self.digest,
            private_round=private_round,
            keep_rounds=list(keep_rounds),
            validate=name == "validate" or scored,
            earlier=dict(self.earlier),
            **self.place(site),
        )

    def place(self, site: str) -> dict[str, Any]:
        """The site's place among those that train, by their names, and how many these are; ``{}`` where nobody does."""
        training = self.study.of_role(*TRAINING_ROLES)
        index = training.index(site) if site in training else None
        return {"site_index": index, "site_count": len(training)} if training else {}

    def start_names(self, role: str, last: int | None, round: int) -> list[str]:
        """Private tensors of which the server holds better values than the site: no site's own work among them.

        A site that took part before starts the layers that were shared then and are private now; one that never did
        starts those of the warm start, or of the checkpoint, and the statistics that labelled sites share.

        Args:
            last: round of the site's last update in the model, or None.
        """
        private = self.policies.of(role, round).private(self.store.initial)
        before = set(self.policies.of(role, last or 0).private(self.store.initial))
        begun = {*self.store.taken, *self.policies.released_statistics(role, round)} if last is None else set()
        return [name for name in private if name not in before or name in begun]
