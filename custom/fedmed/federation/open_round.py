"""A round at the server while its sites work: what was sent to them, what arrived and what was refused."""

import logging
import time
from collections.abc import Mapping, Sequence

from torch import Tensor

from fedmed.aggregation.acceptance import check_update
from fedmed.aggregation.sharing import tensor_bytes
from fedmed.errors import UpdateRefused
from fedmed.federation.applied_rule import AppliedRule
from fedmed.jobs.plan import Plan
from fedmed.jobs.role_sharing import RolePolicies
from fedmed.messages.answers import Update
from fedmed.messages.task import Task
from fedmed.messages.values import extras_bytes

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
        plan: who trains, and how many steps.
        policies: what each role sends.
        applied: its rule is asked for the values that it uses beside the tensors.
        max_norm: largest accepted L2 norm of an update; None = no bound.
    """

    def __init__(self, plan: Plan, policies: RolePolicies, applied: AppliedRule, max_norm: float | None) -> None:
        self.plan, self.policies, self.applied, self.max_norm = plan, policies, applied, max_norm

    def __call__(self, update: Update, model: Mapping[str, Tensor], current: OpenRound) -> float:
        """Check one update of the round; return the L2 norm of its differences.

        Raises:
            UpdateRefused: names the site, the tensor and the reason.
        """
        if update.site not in self.plan.participants(current.number):
            raise UpdateRefused(update.site, f"the site does not train in round {current.number}")
        policy = self.policies.of(self.plan.sites[update.site], current.number)
        expected = {name: model[name] for name in policy.sent(model)}
        norm = check_update(update, expected, current.number, set(current.updates), self.max_norm)
        if self.plan.steps is not None and update.n_steps > self.plan.steps:
            # It would weigh more than it was asked for. Of epochs only the site knows the steps.
            raise UpdateRefused(update.site, f"{update.n_steps} steps reported, {self.plan.steps} asked for")
        self.applied.rule.check_update(update)
        return norm
