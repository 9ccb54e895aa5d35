"""Values that sites send one another before they train, through the server: the ``metadata`` task.

In rounds in which the method says so, the server first sends each site the model, and a site answers with values that
it computes from the model and its images, such as a mean and a covariance of features. With the task to train each site
gets those of the others, never its own, without their names, and the model is not sent again. A site that sends
nothing, because it has too few images or its own settings do not allow it, trains all the same.

Some methods do so once. Each site gets the others' values with the tasks before its first accepted update, and keeps
them; they are all that the method has, so it is an error if none came.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.data.augment.intensities import mean_values
from fedmed.errors import JobError
from fedmed.jobs.job import Job
from fedmed.messages.answers import Extras, extras_bytes, is_number
from fedmed.messages.task import Task
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.plain_text import in_terminal

log = logging.getLogger("fedmed.server")
FLOATS = (torch.float16, torch.float32, torch.float64)
LARGEST = 1e6  # what is larger would only make the others' training fail
Form = tuple[tuple[str, str], ...]  # of a site's values: names, and whether number or tensor of which shape


class Exchange:
    """The server's side of one round's exchange.

    Attributes:
        open: whether answers are awaited.
        values: site -> what it sent and the others may get.
        missing: site -> why there is nothing of it.
        answered: sites that hold the round's tensors on their disk.
        references: the mean of what all of them told once, where each of two or more did; it stays with the run.
    """

    def __init__(self, job: Job) -> None:
        self.study, self.said = job.study, job.exchange
        self.names, self.once, self.entries = list(self.said.names), self.said.once, self.said.entries
        self.values: dict[str, dict[str, Any]] = {}
        self.references: dict[str, Any] = {}
        self._logged: dict[str, str] = {}
        self.begin()

    def begin(self) -> None:
        """Forget the round before; what is told once stays."""
        self.open = False
        self.values = self.values if self.once else {}
        self.missing: dict[str, str] = {}
        self.answered: set[str] = set()
        self.received: dict[str, int] = {}  # bytes of each answer

    def sites_at(self, round: int) -> list[str]:
        """Sites that answer a ``metadata`` task; of what is told once, also those that train only later."""
        sites = self.study.of_role(*TRAINING_ROLES) if self.once else self.study.participants(round)
        return [site for site in sites if self.said.sends(self.study.sites[site])]

    @property
    def scoring_receivers(self) -> list[str]:
        """Sites that get with a model to score what others told: those that never train, or not in the warm start."""
        late = ["unsupervised"] if self.study.warm_start.rounds else []
        return self.study.of_role(*(role for role in ["evaluate", *late] if self.said.receives(role)))

    def state(self) -> dict[str, Any]:
        """Values that stay with the run, from which :meth:`restore` goes on."""
        return self.references

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`; ``{}`` is the start."""
        self.references = dict(state)

    def fail(self, site: str, reason: str) -> None:
        """Note that a site did not answer; it gets the tensors again, with the task to train."""
        self.missing[site] = reason

    def take(self, answers: Mapping[str, Extras], round: int, sites: list[str]) -> None:
        """Check the answers and keep what fits together; whatever is wrong with one, its site still trains.

        Raises:
            JobError: values that are told once came from nobody.
        """
        self.open = False
        for site in sorted(sites):
            answer = answers.get(site)
            # The round comes from the network: it may be anything, also what cannot be compared.
            if answer is None or type(answer.round) is not int or (answer.round, answer.site) != (round, site):
                self.missing.setdefault(site, "it did not answer" if answer is None else "it answered something else")
                continue
            self.answered.add(site)
            self.received[site] = extras_bytes(answer.values)
            if reason := self._wrong(answer.values):
                self.missing[site] = reason
            else:
                self.values[site] = {name: answer.values[name] for name in self.names}
        self._leave_out_strangers()
        if self.once and not self.missing:
            self.references = self.references or mean_values(self.values.values())
        if self.once and not self.values:
            names = ", ".join(self.names)
            reasons = "; ".join(f"'{site}': {reason}" for site, reason in sorted(self.missing.items()))
            raise JobError(
                f"no site sent {names}, without which this job cannot train ({reasons}); sites that may send it write "
                f"'privacy: {{allowed_extras: [{names}]}}' in their YAML, and docs/privacy.md says what it tells"
            )

    def _wrong(self, values: Mapping[str, Any]) -> str | None:
        if not values:
            return "it sent nothing: too few images, or 'privacy.allowed_extras' in its own settings does not list them"
        if lacking := [name for name in self.names if name not in values]:
            return f"it sent no '{lacking[0]}', which the others need"
        if unknown := sorted(map(str, set(values) - set(self.names))):
            return f"it sent '{in_terminal(unknown[0], 40)}', which the job does not ask for"
        for name, value in values.items():
            kind = "table" if self.entries else "vector"
            formed = isinstance(value, Tensor) and (value.ndim > 1 if self.entries else value.ndim == 1)
            several = formed and value.numel() and value.dtype in FLOATS
            if not is_number(value) and not (several and all_finite(value)):
                return f"its '{name}' is neither a finite number nor a {kind} of such"
            if self.entries and several and float(value.min()) < 0:
                return f"its '{name}' has numbers below 0, which 'privacy.extras_noise' in its own settings may make"
            if float(value.abs().amax() if several else abs(value)) > LARGEST:
                return f"its '{name}' goes beyond {LARGEST:g}, as no value of images does"
        return None

    def _leave_out_strangers(self) -> None:
        """Sites whose values have another form than those of most; if no form is the most frequent one, all."""
        forms: dict[str, Form] = {site: _form(values) for site, values in sorted(self.values.items())}
        ranked = Counter(forms.values()).most_common(2)
        usual = None if len(ranked) == 2 and ranked[0][1] == ranked[1][1] else ranked[0][0] if ranked else ()
        for site in [site for site, form in forms.items() if form != usual]:
            what = "no form is that of most sites" if usual is None else _words(forms[site], usual)
            self.missing[site] = f"its values have another form than those of others: {what}"
            del self.values[site]

    def fill(self, task: Task, site: str) -> Task:
        """Add the other sites' tensors to a task to train, and leave the model out if the site has it."""
        if site in self.answered:
            task.tensors, task.reuse = {}, True
        has_kept = self.once and task.private_round is not None  # with its first accepted update
        if not has_kept and self.said.receives(self.study.sites[site]):
            task.extras = self._others(site)
        return task

    def fill_scoring(self, task: Task, site: str) -> Task:
        """Add them to a task of a site that had not trained before the model came about, and so keeps nothing."""
        if site in self.scoring_receivers and task.private_round is None:
            task.extras = self._others(site)
        return task

    def _others(self, site: str) -> dict[str, Any]:
        others = [_arrays(values) for other, values in sorted(self.values.items()) if other != site]
        return {"others": others} if any(others) else {}  # all have the same names

    def warnings(self) -> list[dict[str, str]]:
        """Sites that sent nothing, and why; told when it begins or changes."""
        news = [(site, reason) for site, reason in sorted(self.missing.items()) if self._logged.get(site) != reason]
        self._logged = dict(self.missing)
        return [{"site": site, "message": f"the others do not learn from it: {reason}"} for site, reason in news]


def _arrays(values: Mapping[str, Any]) -> dict[str, Tensor]:
    """Arrays, which the other sites need; numbers, such as how many images a site has, stay at the server."""
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def _form(values: Mapping[str, Any]) -> Form:
    return tuple((name, _kind(value)) for name, value in sorted(values.items()))


def _kind(value: Any) -> str:
    if not isinstance(value, Tensor):
        return "number"
    shape = value.shape if value.ndim == 1 else value.shape[1:]  # a site says how many entries a table has
    return " × ".join([str(value.dtype).removeprefix("torch."), *map(str, shape)])


def _words(form: Form, usual: Form) -> str:
    return ", ".join(f"'{name}' {kind}, not {dict(usual)[name]}" for name, kind in form if dict(usual)[name] != kind)
