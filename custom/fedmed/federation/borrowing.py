"""Labelled sites' private layers, lent to sites that cannot be scored without them.

With partial sharing a site without labels never has a trained decoder. Yang et al. 2021 evaluate it with a labelled
site's: after the last round the server asks that site for its private layers, and scores the others with them. Fang et
al. 2025 take the mean of all sites' for a site that never trained.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedmed.aggregation.sharing import tensor_bytes
from fedmed.errors import SharingError
from fedmed.federation.released_layers import UNKNOWN_SAMPLES, MeanOfSites, fault, keep_mean, reported_samples
from fedmed.federation.server import Server
from fedmed.messages.answers import Release
from fedmed.messages.task import Task
from fedmed.methods.lent_layers import ALL_SITES

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
    """The server's side: asks one labelled site, or all, and lends what they release to sites without layers.

    The layers are held only until the evaluation is over. They are never saved, but for the mean of all sites' where
    the study asks for it and every site allows that too.

    Args:
        server: the server, after training.

    Attributes:
        owner: the site that lends, ``all`` for the mean of all, None where the job names none.
        records: one for each model for which layers were needed.
    """

    def __init__(self, server: Server) -> None:
        self.server, self.owner = server, server.plan.release_from
        self.records: list[dict[str, Any]] = []
        self._asked: set[str] = set()  # sites of which an answer to the newest request is awaited
        self._tensors: Mapping[str, Tensor] = {}

    @property
    def _several(self) -> bool:
        return self.owner == ALL_SITES

    def tasks(self, model: Evaluated) -> dict[str, Task]:
        """The owners' tasks, or nothing if no site needs it, or they trained nothing that belongs to this model."""
        self._tensors, self._asked, server = {}, set(), self.server
        needy = [s for s, role in server.plan.sites.items() if not server.policies.scorable(role, model.round)]
        if self.owner is None or not (needy or self._to_keep(model)):
            return {}
        self.records.append({"model": model.name, "from": self.owner, "released": False, "for": needy})
        if self._several:
            self.records[-1] |= {"asked": server.plan.lenders, "refused": {}}
        able = [site for site in server.plan.lenders if self._trained(site, model)]
        for site in [site for site in server.plan.lenders if site not in able]:
            self._refuse(site, "it has not trained private layers of its own for this model")
        if self._hopeless() or not able:
            self._give_up()
            return {}
        self._asked = set(able)
        return {site: self._task(model, model.private[site]) for site in able}

    def _to_keep(self, model: Evaluated) -> bool:
        """Whether the mean is wanted for an export: of a model that was trained and has private layers."""
        return bool(self.server.plan.release_keep and model.private and self._names(model.round))

    def _trained(self, site: str, model: Evaluated) -> bool:
        round = model.private.get(site)
        return round is not None and self._names(round) == self._names(model.round)

    def _task(self, model: Evaluated, round: int) -> Task:
        server, tasks = self.server, self.server.tasks
        task = Task("release", model.round, server.plan.rounds, {}, private_round=round, study=tasks.study)
        task.earlier, task.keep = dict(tasks.earlier), server.plan.release_keep
        return task

    def _names(self, round: int) -> list[str]:
        return self.server.policies.of("supervised", round).private(self.server.store.initial)

    def take(self, answers: Mapping[str, Release], model: Evaluated) -> None:
        """Check the owners' answers and say what came of them."""
        if not self._asked:
            return
        expected = {name: self.server.store.initial[name] for name in self._names(model.round)}
        samples = self._samples(model)
        usable = self._usable(answers, expected, model, samples)
        self._asked = set()
        if self._hopeless() or not usable:
            return self._give_up()
        sizes = {site: tensor_bytes(answer.tensors) for site, answer in usable.items()}
        for site, answer in usable.items():
            log.warning(
                "site '%s' released its %d private tensors of round %d (%d bytes)",
                *(site, len(answer.tensors), answer.round, sizes[site]),
            )
        facts: dict[str, Any] = {"n_tensors": len(expected), "bytes_up": sum(sizes.values()), "bytes_down": 0}
        if self._several:
            self._take_mean(usable, samples, model, facts)
        else:
            (only,) = usable.values()
            self._tensors = only.tensors
            self.records[-1].update({"round": only.round, **facts}, released=True)

    def _usable(
        self,
        answers: Mapping[str, Release],
        expected: Mapping[str, Tensor],
        model: Evaluated,
        samples: Mapping[str, int],
    ) -> dict[str, Release]:
        """The answers that can be used, by site; reasons are noted of the others."""
        counts, usable = self._several and self.server.plan.release_weights == "samples", dict[str, Release]()
        for site in sorted(self._asked):
            reason = fault(answers.get(site), expected, model.private[site])
            if not reason and counts and site not in samples:
                reason = UNKNOWN_SAMPLES
            if reason:
                self._refuse(site, reason)
            else:
                usable[site] = answers[site]
        return usable

    def _take_mean(
        self, usable: Mapping[str, Release], samples: Mapping[str, int], model: Evaluated, facts: Mapping[str, Any]
    ) -> None:
        try:
            mean = MeanOfSites.of(usable, samples, self.server.plan.release_weights)
        except SharingError as error:
            self.records[-1]["reason"] = str(error)
            log.warning("the private layers of the sites have no mean: %s", error)
            return
        shares = ", ".join(f"{site} {share:.3f}" for site, share in mean.shares.items())
        log.warning("sites without private layers are scored with the mean of those of %s", shares)
        self._tensors = mean.tensors
        rounds = {site: answer.round for site, answer in usable.items()}
        kept = keep_mean(self.server, mean, usable, model.round)
        self.records[-1].update({**facts, **mean.facts(), "rounds": rounds, **kept}, released=True)

    def _samples(self, model: Evaluated) -> dict[str, int]:
        lines = {line["round"]: line for line in self.server.continuation.state.read_rounds(self.server.rounds)}
        return reported_samples(lines, model.private)

    def _refuse(self, site: str, reason: str) -> None:
        if self._several:
            self.records[-1]["refused"][site] = reason
        else:
            self.records[-1]["reason"] = reason
        log.warning("site '%s' released no private layers: %s", site, reason)

    def _hopeless(self) -> bool:
        """Whether a refusal settles it."""
        if not self._several:
            return "reason" in self.records[-1]
        return bool(self.records[-1]["refused"]) and not self.server.plan.release_partial

    def _give_up(self) -> None:
        if not self._several:
            return
        refused = ", ".join(self.records[-1]["refused"])
        partial = self.server.plan.release_partial
        hint = "nobody is left" if partial else "'release_partial: true' would take the mean of the others"
        self.records[-1]["reason"] = f"{refused} released none; {hint}"
        log.warning("no private layers are lent: %s", self.records[-1]["reason"])

    def lend(self, site: str, model: Evaluated) -> dict[str, Tensor] | None:
        """Return the tensors that make ``site`` scorable, or None if they were not released."""
        needed = self.server.policies.borrowed(self.server.plan.sites[site], model.round, site in model.private)
        if any(name not in self._tensors for name in needed):
            return None
        lent = {name: self._tensors[name] for name in needed}
        if lent:
            self.records[-1]["bytes_down"] += tensor_bytes(lent)
        whose = "the mean of the sites' private layers" if self._several else f"the decoder of site '{self.owner}'"
        log.info("site '%s' is scored with %s", site, whose)
        return lent

    def forget(self) -> None:
        """Drop the layers."""
        self._tensors = {}
