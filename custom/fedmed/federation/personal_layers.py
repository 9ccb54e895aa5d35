"""Private layers that sites release to score others: what is asked for, believed and averaged."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.sharing import classify, tensor_bytes
from fedmed.bundles.bundle_parser import merge
from fedmed.errors import SharingError, StateError
from fedmed.federation.server import Server
from fedmed.messages.answers import Release
from fedmed.messages.task import SELECTED, Task
from fedmed.methods.method import ALL_SITES

log = logging.getLogger("fedmed.server")
UNKNOWN_SAMPLES = (
    "it did not say of how many training samples its layers are ('n_samples' among 'privacy.allowed_metrics' in its "
    "own settings); 'release_weights: uniform' does not need it"
)


@dataclass(frozen=True)
class Evaluated:
    """A model that is to be tested."""

    name: str  # ``selected``, ``last`` or ``first``
    round: int  # after which it was aggregated; -1: the starting model
    tensors: Mapping[str, Tensor]
    private: Mapping[str, int]  # site -> round of the private state that belongs to it


class PersonalLayers:
    """The server's side: asks one labelled site, or all, and lends what they release to sites without layers.

    The layers are held only until the evaluation is over. They are never saved, but for the mean of all sites' where
    the study asks for it and every site allows that too.

    Attributes:
        owner: the site that lends, ``all`` for the mean of all, None where the job names none.
        records: one for each model for which layers were needed.
    """

    def __init__(self, server: Server) -> None:
        self.server, self.owner = server, server.study.release_from
        self.records: list[dict[str, Any]] = []
        self._awaited: set[str] = set()  # sites of which an answer to the newest request is awaited
        self._tensors: Mapping[str, Tensor] = {}

    @property
    def _several(self) -> bool:
        return self.owner == ALL_SITES

    def tasks(self, model: Evaluated) -> dict[str, Task]:
        """The owners' tasks, or nothing if no site needs it, or they trained nothing that belongs to this model."""
        self._tensors, self._awaited, server = {}, set(), self.server
        needy = [s for s, role in server.study.sites.items() if not server.policies.scorable(role, model.round)]
        study, lent = server.study, model.private and self._names(model.round)
        wanted = study.release_keep or (study.gain and model.name == SELECTED)  # for an export, and to compare
        if self.owner is None or not (needy or (wanted and lent)):
            return {}
        self.records.append({"model": model.name, "from": self.owner, "released": False, "for": needy})
        if self._several:
            self.records[-1] |= {"asked": server.study.releasing_sites, "refused": {}}
        able = [site for site in server.study.releasing_sites if self._trained(site, model)]
        for site in [site for site in server.study.releasing_sites if site not in able]:
            self._refuse(site, "it has not trained private layers of its own for this model")
        if self._hopeless() or not able:
            self._give_up()
            return {}
        self._awaited = set(able)
        return {site: self._task(model, model.private[site]) for site in able}

    def _trained(self, site: str, model: Evaluated) -> bool:
        round = model.private.get(site)
        return round is not None and self._names(round) == self._names(model.round)

    def _task(self, model: Evaluated, round: int) -> Task:
        server, tasks = self.server, self.server.tasks
        task = Task("release", model.round, server.study.rounds, {}, private_round=round, study=tasks.digest)
        task.earlier, task.keep = dict(tasks.earlier), server.study.release_keep
        return task

    def _names(self, round: int) -> list[str]:
        return self.server.policies.of("supervised", round).private(self.server.store.initial)

    def take(self, answers: Mapping[str, Release], model: Evaluated) -> None:
        """Check the owners' answers and say what came of them."""
        if not self._awaited:
            return
        expected = {name: self.server.store.initial[name] for name in self._names(model.round)}
        samples = self._samples(model)
        usable = self._usable(answers, expected, model, samples)
        self._awaited = set()
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
        counts, usable = self._several and self.server.study.release_weights == "samples", dict[str, Release]()
        for site in sorted(self._awaited):
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
        weighing = self.server.study.release_weights
        shares = site_shares({site: samples.get(site, 0) for site in usable}, weighing)
        try:
            mean = mean_of_sites({site: answer.tensors for site, answer in usable.items()}, shares)
        except SharingError as error:
            self.records[-1]["reason"] = str(error)
            log.warning("the private layers of the sites have no mean: %s", error)
            return
        shown = ", ".join(f"{site} {share:.3f}" for site, share in shares.items())
        log.warning("sites without private layers are scored with the mean of those of %s", shown)
        self._tensors = mean
        rounds = {site: answer.round for site, answer in usable.items()}
        weights = {"weighting": weighing, "weights": shares}
        kept = self._keep_mean(mean, weights, usable, model.round)
        self.records[-1].update({**facts, **weights, "rounds": rounds, **kept}, released=True)

    def _keep_mean(
        self, mean: Mapping[str, Tensor], weights: Mapping[str, Any], released: Mapping[str, Release], round: int
    ) -> dict[str, Any]:
        """Keep the mean for an export if the study asks for it and every site allows it; return the facts of it."""
        study = self.server.study
        if not study.release_keep:
            return {}
        lacking = [site for site in study.releasing_sites if site not in released or not released[site].keep]
        if lacking:
            reason = f"{', '.join(lacking)} did not allow it ('allow_kept_release' in a site's own settings)"
            log.warning("the mean of the private layers is not kept: %s", reason)
            return {"kept": False, "not_kept": reason}
        try:
            path = self.server.store.keep_mean(round, mean, weights)
        except StateError as error:
            log.error("the mean of the private layers is not kept: %s", error)
            return {"kept": False, "not_kept": "it could not be written"}
        log.warning("the mean of the private layers of %s is kept for an export: %s", ", ".join(released), path)
        return {"kept": True}

    def _samples(self, model: Evaluated) -> dict[str, int]:
        """Training samples that each site reported with the update to which its private layers belong, if above 0."""
        rounds = {line["round"]: line for line in self.server.checkpoints.read_rounds(self.server.rounds)}
        said = {site: rounds.get(round, {}).get("sites", {}).get(site, {}) for site, round in model.private.items()}
        counts = {site: numbers.get("n_samples") for site, numbers in said.items()}
        return {site: number for site, number in counts.items() if type(number) is int and number > 0}

    def _refuse(self, site: str, reason: str) -> None:
        if self._several:
            self.records[-1]["refused"][site] = reason
        else:
            self.records[-1]["reason"] = reason
        log.warning("site '%s' released no private layers: %s", site, reason)

    def _hopeless(self) -> bool:
        """Tell whether a refusal settles it."""
        if not self._several:
            return "reason" in self.records[-1]
        return bool(self.records[-1]["refused"]) and not self.server.study.release_partial

    def _give_up(self) -> None:
        if not self._several:
            return
        refused = ", ".join(self.records[-1]["refused"])
        partial = self.server.study.release_partial
        hint = "nobody is left" if partial else "'release_partial: true' would take the mean of the others"
        self.records[-1]["reason"] = f"{refused} released none; {hint}"
        log.warning("no private layers are lent: %s", self.records[-1]["reason"])

    def lend(self, site: str, model: Evaluated) -> dict[str, Tensor] | None:
        """Return the tensors that make ``site`` scorable, or None if they were not released."""
        needed = self.server.policies.borrowed(self.server.study.sites[site], model.round, site in model.private)
        if any(name not in self._tensors for name in needed):
            return None
        lent = {name: self._tensors[name] for name in needed}
        if lent:
            self.records[-1]["bytes_down"] += tensor_bytes(lent)
        source = "the mean of the sites' private layers" if self._several else f"the decoder of site '{self.owner}'"
        log.info("site '%s' is scored with %s", site, source)
        return lent

    def instead_of(self, site: str) -> dict[str, Tensor]:
        """Return the released layers, for a labelled site that has its own; nothing for the one that released them."""
        layers = {} if site == self.owner else dict(self._tensors)
        if layers:
            self.records[-1]["bytes_down"] += tensor_bytes(layers)
        return layers

    def forget(self) -> None:
        """Drop the layers."""
        self._tensors = {}


def fault(answer: Release | None, expected: Mapping[str, Tensor], round: int) -> str:
    """Say why an answer to a ``release`` task cannot be used; empty if it can.

    Args:
        round: whose private layers were asked for.
    """
    if answer is None:
        return "it did not answer"
    if not answer.allowed:
        return "it does not allow it ('allow_release' in its own settings)"
    try:
        if answer.round != round:
            raise SharingError(f"it is of round {answer.round}, round {round} was asked for")
        merge(expected, answer.tensors, expected)
        if bad := [name for name, tensor in answer.tensors.items() if not all_finite(tensor)]:
            raise SharingError(f"tensor '{bad[0]}' has values that are NaN or infinite")
    except SharingError as error:
        return f"its answer is unusable: {error}"
    return ""


def site_shares(samples: Mapping[str, int], weighing: str = "samples") -> dict[str, float]:
    """Return each site's share a_k = N_k / sum N (Fang et al. 2025, unseen site), or the same for all.

    Args:
        samples: site -> training samples N_k that it reported, 1 or more; with ``uniform`` they are not looked at.
        weighing: ``samples`` or ``uniform``.
    """
    if weighing == "uniform":
        return dict.fromkeys(sorted(samples), 1 / len(samples))
    total = sum(samples.values())
    return {site: samples[site] / total for site in sorted(samples)}


def mean_of_sites(tensors: Mapping[str, Mapping[str, Tensor]], shares: Mapping[str, float]) -> dict[str, Tensor]:
    """Return the weighted mean of each tensor over the sites, in new memory; no argument is modified.

    What all sites have alike comes out as it is, bit for bit, and which site has which values changes no bit: terms are
    added in the order of their size. Counters become the largest of the sites'.

    Args:
        tensors: site -> name -> tensor; the same names, shapes and dtypes at every site, on the CPU.
        shares: site -> share; they sum to 1.

    Raises:
        SharingError: a constant, such as a table of indices, that differs between the sites, or a mean that is not
            finite; names the tensor.
    """
    sites = sorted(tensors)
    names = list(tensors[sites[0]])
    return {name: _mean(name, [tensors[site][name] for site in sites], [shares[s] for s in sites]) for name in names}


@torch.no_grad()
def _mean(name: str, values: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    kind = classify(name, values[0])
    if kind == "counter":
        return torch.stack(list(values)).amax(dim=0)
    if kind == "constant":
        if not all(torch.equal(values[0], other) for other in values):
            raise SharingError(f"tensor '{name}' is a table of whole numbers that differs between the sites")
        return values[0].clone()
    every = torch.stack([value.double() for value in values])
    least = every.amin(dim=0)
    weights = torch.tensor(list(shares), dtype=torch.float64).view(-1, *[1] * values[0].dim())
    terms = ((every - least) * weights).sort(dim=0).values
    above = torch.zeros_like(least)
    for term in terms:
        above = above + term
    mean = torch.where(above == 0, least, least + above).to(values[0].dtype)  # -0.0 + 0.0 would be another number
    if not all_finite(mean):
        raise SharingError(f"the mean of tensor '{name}' over the sites is not finite")
    return mean.contiguous()
