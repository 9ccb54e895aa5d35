"""A round at the server: the tasks that it hands out, and the answers that it has so far."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from fedmed.aggregation.acceptance import check_update
from fedmed.aggregation.sharing import tensor_bytes
from fedmed.errors import UpdateRefused
from fedmed.federation.applied_rule import AppliedRule
from fedmed.jobs.job import Job, RolePolicies
from fedmed.jobs.study import Study
from fedmed.messages.answers import Update
from fedmed.messages.task import Task
from fedmed.messages.values import extras_bytes
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.recovery.model_store import ModelStore

log = logging.getLogger("fedmed.server")


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
    """What an update must be to be taken.

    Args:
        study: who trains, how many steps, and the largest accepted norm of an update.
        policies: what each role sends.
        applied: its rule is asked for the values that it uses beside the tensors.
    """

    def __init__(self, study: Study, policies: RolePolicies, applied: AppliedRule) -> None:
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
    """Makes tasks from the job's study and sharing policies.

    Args:
        job: sites, roles, rounds, and the study's digest.
        store: the starting model and the bundle's hash.
        policies: what each role receives.
    """

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
            site: who gets it.
            round: the round to train, or the one whose aggregate is scored (-1: the starting model).
            tensors: the whole model; the site gets what its role receives.
            private_round: round of the private state that the site continues, or None.
            keep_rounds: further rounds whose private state the site must keep.
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
            role: the site's role.
            last: round of the site's last update in the model, or None.
            round: the round of the task.
        """
        private = self.policies.of(role, round).private(self.store.initial)
        before = set(self.policies.of(role, last or 0).private(self.store.initial))
        begun = {*self.store.taken, *self.policies.lent_statistics(role, round)} if last is None else set()
        return [name for name in private if name not in before or name in begun]
