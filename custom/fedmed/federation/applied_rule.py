"""The server's rule in a run: whole rounds or none, and what the last good one left for the tasks that follow."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.rule import ExpectedSenders, Model, Outcome, RoundFacts, ServerRule
from fedmed.class_paths import class_path
from fedmed.errors import FedMedError, JobError, StateError
from fedmed.federation.server_training import ServerTraining, Trained
from fedmed.jobs.job import RolePolicies
from fedmed.jobs.study import Study
from fedmed.messages.answers import Update
from fedmed.messages.task import Task
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.moved_classes import FINISH, hint

RESERVED = "others"  # what sites tell one another goes to a site under this name, see exchange.py


class AppliedRule:
    """A rule with what its last good round left.

    Args:
        rule: the rule.
        study: sites, roles, rounds.

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
        """What sites of a role train from."""
        return {**model, **self.for_roles[role]} if role in self.for_roles else model

    def fill(self, task: Task, site: str) -> Task:
        """Add the rule's values for a site to its task to train."""
        if site in self.values:
            task.extras = {**task.extras, **self.values[site]}
        return task

    def state(self) -> dict[str, Any]:
        """What must be saved with the model; ``{}`` where there is nothing.

        ``rule`` is the class path, ``state`` the rule's own, ``for_roles`` and ``values`` what it left for tasks, and
        ``training`` that of a server that trains.
        """
        state, training = self.rule.state(), dict(self.training.state()) if self.training else {}
        if not (state or self.for_roles or self.values or training):
            return {}
        for_roles = {role: dict(tensors) for role, tensors in self.for_roles.items()}
        beside = {"for_roles": for_roles, "values": {site: dict(of_site) for site, of_site in self.values.items()}}
        return {"rule": class_path(self.rule), "state": state, **beside, "training": training}

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
            for_roles, values = dict(state["for_roles"]), {site: dict(own) for site, own in state["values"].items()}
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
