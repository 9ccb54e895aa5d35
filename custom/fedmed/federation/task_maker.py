"""What a site is sent for one task."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from fedmed.jobs.plan import TRAINING_ROLES, Plan
from fedmed.jobs.role_sharing import RolePolicies
from fedmed.messages.task import Task
from fedmed.recovery.model_store import ModelStore


class TaskMaker:
    """Makes tasks from the job's plan and sharing policies.

    Args:
        plan: sites, roles, rounds.
        store: the starting model and the bundle's hash.
        policies: what each role receives.
        study: digest of the study.
    """

    def __init__(self, plan: Plan, store: ModelStore, policies: RolePolicies, study: str = "") -> None:
        self.plan, self.store, self.policies, self.study = plan, store, policies, study
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
        role = self.plan.sites[site]
        received = [*self.policies.of(role, round).received(tensors), *self.start_names(role, private_round, round)]
        return Task(
            name=name,
            round=round,
            total_rounds=self.plan.rounds,
            tensors={n: tensors[n] for n in received},
            steps=self.plan.steps or 0 if name == "train" else 0,
            epochs=self.plan.epochs if name == "train" else None,
            bundle_digest=self.store.bundle.digest,
            study=self.study,
            private_round=private_round,
            keep_rounds=list(keep_rounds),
            validate=name == "validate" or (name != "metadata" and role == "supervised" and self.plan.validates(round)),
            earlier=dict(self.earlier),
            **self.place(site),
        )

    def place(self, site: str) -> dict[str, Any]:
        """The site's place among those that train, by their names, and how many these are; ``{}`` where nobody does."""
        training = self.plan.of_role(*TRAINING_ROLES)
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
