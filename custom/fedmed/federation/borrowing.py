"""A labelled site's private layers, lent to sites that cannot be scored without them.

With partial sharing a site without labels never has a trained decoder. Yang et al. 2021 evaluate it with a labelled
site's: after the last round the server asks that site for its private layers, and scores the others with them.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.sharing import tensor_bytes
from fedmed.bundles.network import merge
from fedmed.errors import SharingError
from fedmed.federation.server import Server
from fedmed.messages.answers import Release
from fedmed.messages.task import Task

log = logging.getLogger("fedmed.server")


@dataclass(frozen=True)
class Evaluated:
    """A model that is to be tested.

    Attributes:
        name: ``selected``, ``last`` or ``first``.
        round: the round after which it was aggregated; -1: the starting model.
        tensors: its tensors.
        private: site -> round of the private state that belongs to it.
    """

    name: str
    round: int
    tensors: Mapping[str, Tensor]
    private: Mapping[str, int]


class Borrower:
    """The server's side: asks one labelled site and lends its private layers to sites that cannot be scored alone.

    The layers are held only until the evaluation is over, and never saved.

    Args:
        server: the server, after training.

    Attributes:
        owner: the site that lends; None where the job names none.
        records: one for each model for which the owner was needed.
    """

    def __init__(self, server: Server) -> None:
        self.server, self.owner = server, server.plan.release_from
        self.records: list[dict[str, Any]] = []
        self._waits = False  # whether the newest record waits for its answer
        self._tensors: Mapping[str, Tensor] = {}

    def tasks(self, model: Evaluated) -> dict[str, Task]:
        """The owner's task, or nothing if no site needs it, or it has trained nothing that belongs to this model."""
        self._tensors, self._waits, server = {}, False, self.server
        needy = [s for s, role in server.plan.sites.items() if not server.policies.scorable(role, model.round)]
        if self.owner is None or not needy:
            return {}
        self.records.append({"model": model.name, "from": self.owner, "released": False, "for": needy})
        round = model.private.get(self.owner)
        if round is None or self._names(round) != self._names(model.round):
            self._refuse("it has not trained private layers of its own for this model")
            return {}
        self._waits, tasks = True, server.tasks
        task = Task("release", model.round, server.plan.rounds, {}, private_round=round, study=tasks.study)
        task.earlier = dict(tasks.earlier)
        return {self.owner: task}

    def _names(self, round: int) -> list[str]:
        return self.server.policies.of("supervised", round).private(self.server.store.initial)

    def take(self, answers: Mapping[str, Release], model: Evaluated) -> None:
        """Check the owner's answer and say what came of it."""
        if not self._waits or self.owner is None:
            return
        answer = answers.get(self.owner)
        if answer is None:
            return self._refuse("it did not answer")
        if not answer.allowed:
            return self._refuse("it does not allow it ('allow_release' in its own settings)")
        try:
            self._check(answer, model, model.private[self.owner])
        except SharingError as error:
            return self._refuse(f"its answer is unusable: {error}")
        self._tensors, size = answer.tensors, tensor_bytes(answer.tensors)
        facts = {"round": answer.round, "n_tensors": len(answer.tensors), "bytes_up": size, "bytes_down": 0}
        self.records[-1].update(facts, released=True)
        log.warning(
            "site '%s' released its %d private tensors of round %d (%d bytes)",
            *(self.owner, len(answer.tensors), answer.round, size),
        )

    def _check(self, answer: Release, model: Evaluated, round: int) -> None:
        expected = {name: self.server.store.initial[name] for name in self._names(model.round)}
        if answer.round != round:
            raise SharingError(f"it is of round {answer.round}, round {round} was asked for")
        merge(expected, answer.tensors, expected)
        if bad := [name for name, tensor in answer.tensors.items() if not all_finite(tensor)]:
            raise SharingError(f"tensor '{bad[0]}' has values that are NaN or infinite")

    def _refuse(self, reason: str) -> None:
        self._waits = False
        self.records[-1]["reason"] = reason
        log.warning("site '%s' released no private layers: %s", self.owner, reason)

    def lend(self, site: str, model: Evaluated) -> dict[str, Tensor] | None:
        """Return the tensors that make ``site`` scorable, or None if they were not released."""
        needed = self.server.policies.borrowed(self.server.plan.sites[site], model.round, site in model.private)
        if any(name not in self._tensors for name in needed):
            return None
        lent = {name: self._tensors[name] for name in needed}
        if lent:
            self.records[-1]["bytes_down"] += tensor_bytes(lent)
        log.info("site '%s' is scored with the decoder of site '%s'", site, self.owner)
        return lent

    def forget(self) -> None:
        """Drop the layers."""
        self._tensors = {}
