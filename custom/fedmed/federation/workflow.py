"""The order of a federation's work, the same on FLARE and in one process."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from fedmed.errors import RoundFailed
from fedmed.federation.personal_layers import Evaluated, PersonalLayers
from fedmed.federation.server import Server
from fedmed.messages.answers import Release
from fedmed.messages.task import ALONE, FIRST, LAST, RELEASED, SELECTED, SITE_BEST, Task
from fedmed.methods.control_kinds import is_control
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.methods.method import decoder_source
from fedmed.recovery.site_state import START

log = logging.getLogger("fedmed.server")
Ask = Callable[[Mapping[str, Task]], dict[str, Any]]
Metrics = Mapping[str, Mapping[str, float]]  # site -> its scalars


def run_federation(server: Server, ask: Ask, finish_round: Callable[[], object] | None = None) -> None:
    """Train all rounds, or fewer if the study allows it and models do not become better.

    Then score the last aggregate and evaluate the selected model, the last, the starting one and each labelled site's
    own best, as far as the study asks for it. Before the first round the sites' images are compared, if it asks for it.

    Args:
        ask: sends each site its task and waits; hands updates to ``server.accept`` and returns the other answers by
            site: metrics of validation and evaluation, a :class:`Release` of a release task, :class:`Extras` of a
            metadata or fingerprint task.
        finish_round: ends a round; ``server.finish_round`` by default.

    Raises:
        RoundFailed: too many failed rounds in a row, or the last one, or no labelled site contributed to any. The
            models saved so far stay.
    """
    server.compare_sites(ask)
    for round in range(server.first_round, server.study.rounds):
        if server.ends_before(round):
            break
        if server.exchanges(round):
            server.take_metadata(ask(server.metadata_tasks(round)))
        ask(server.train_tasks(round))
        try:
            (finish_round or server.finish_round)()
        except RoundFailed as error:
            log.error("%s", error)
            if server.failed_in_a_row >= server.study.max_failed_rounds or round == server.study.rounds - 1:
                raise
    if server.asks_before_scoring():
        server.take_metadata(ask(server.metadata_tasks(server.rounds - 1)))
    server.check_labels()
    closing = Closing(server)
    closing.finish_validation(ask(closing.validation_tasks()))
    study, wanted = server.study, {FIRST: server.study.evaluate_first, LAST: server.study.evaluate_last}
    others = {model: _test(closing, ask, model) for model, wants in wanted.items() if wants}
    test = _test(closing, ask, SELECTED) if study.evaluate else {}
    more = {SITE_BEST: closing.best_model_tasks(), RELEASED: closing.released_tasks, ALONE: closing.alone_tasks()}
    kept = more if study.evaluate else {}  # what a site gains alone is told last, with all of its tests
    closing.finish(test, others, {model: ask(tasks) for model, tasks in kept.items() if tasks})


class Closing:
    """The end of a federation."""

    def __init__(self, server: Server) -> None:
        self.server, self.study, self.selection = server, server.study, server.selection
        self.last_tensors, self.last_scores = server.tensors, dict[str, float]()
        self.last_score: float | None = None
        self.mean = server.newest.mean()
        self.personal_layers = PersonalLayers(server)
        self.decoder_of: dict[tuple[str, str], str] = {}  # (model, site) -> whose private layers scored it
        self.refused_numbers: dict[str, list[str]] = {}  # site -> what is wrong with what it reported
        self.untested: dict[str, str] = {}  # site -> why it has no layers for the selected model
        self.released_tasks: dict[str, Task] = {}  # labelled sites' tests with layers that sites released

    def validation_tasks(self) -> dict[str, Task]:
        """Labelled sites score the last aggregate, which no training round does, or the mean where that is the result;
        nobody if it is the last aggregate anyway.
        """
        if self.study.select == "last":
            return {}
        if self.mean is not None:
            self.server.tensors = self.mean
        last = self.server.rounds - 1
        return {site: self.server.task("validate", site, last) for site in self.study.of_role("supervised")}

    def finish_validation(self, metrics: Metrics) -> None:
        """Take the closing scores into the selection; the server then holds the selected model."""
        reported = self.server.reported
        metrics = {site: self._noted(site, *reported.metrics(sent)) for site, sent in sorted(metrics.items())}
        score = self.server.select(self.server.rounds - 1, metrics, is_result=self.mean is not None)
        if self.mean is None:
            self.last_scores, self.last_score = self.selection.scores(metrics), score
        if self.selection.best_tensors is not None:
            self.server.tensors = dict(self.selection.best_tensors)

    def _model(self, name: str) -> Evaluated:
        server, best = self.server, self.selection.best_round
        if name == FIRST:
            return Evaluated(FIRST, START, server.store.initial, {})
        if name == LAST:
            return Evaluated(LAST, self.server.rounds - 1, self.last_tensors, server.last_round)
        if best is None:  # no score chose a model, so the last aggregate is taken
            return Evaluated(SELECTED, self.server.rounds - 1, server.tensors, server.last_round)
        return Evaluated(SELECTED, best, server.tensors, server.selection.best_private)

    def release_tasks(self, name: str = SELECTED) -> dict[str, Task]:
        """Ask one site, or all, for the private layers that sites without a trained part are scored with, if wanted."""
        return self.personal_layers.tasks(self._model(name))

    def take_release(self, answers: Mapping[str, Release], name: str = SELECTED) -> None:
        """Take the answer to :meth:`release_tasks`."""
        self.personal_layers.take(answers, self._model(name))

    def evaluation_tasks(self, name: str = SELECTED) -> dict[str, Task]:
        """The selected model, the last aggregate or the starting model, to every site that can be scored with it.

        With partial sharing only labelled sites that took part have a trained private part. The others get a labelled
        site's, or the mean of all, if it was released; else they are left out, and that is said.
        """
        model, tasks = self._model(name), {}
        for site, role in self.study.sites.items():
            reason = self._no_layers(site, role, model)
            lent = self.personal_layers.lend(site, model) if reason else {}
            if lent is None:
                self.untested |= {site: reason} if name == SELECTED else {}
                log.warning("site '%s' is not scored: it has no trained private layers: %s", site, reason)
                continue
            tasks[site] = self._scoring_task(model.name, site, model, lent)
            if reason:
                self.decoder_of[model.name, site] = str(self.personal_layers.owner)
        if name == SELECTED and self.study.gain:
            self.released_tasks = self._with_released(model)
        self.personal_layers.forget()
        return tasks

    def _with_released(self, model: Evaluated) -> dict[str, Task]:
        """Labelled sites test the selected model with the layers that others released, in place of their own."""
        tasks = {}
        for site in self.study.of_role("supervised"):
            if site in model.private and (layers := self.personal_layers.instead_of(site)):
                tasks[site] = self._scoring_task(RELEASED, site, model, layers)
                self.decoder_of[RELEASED, site] = str(self.personal_layers.owner)
        return tasks

    def _scoring_task(self, name: str, site: str, model: Evaluated, layers: Mapping[str, Tensor]) -> Task:
        """The task to test a model under a name, with private layers that come along."""
        server, private = self.server, model.private.get(site)
        kept = server.checkpoints.needed_of(site)
        task = server.tasks.make("evaluate", site, model.round, model.tensors, private, kept)
        task = server.exchange.fill_scoring(task, site)
        task.tensors |= layers
        task.model = name
        return task

    def _no_layers(self, site: str, role: str, model: Evaluated) -> str:
        """Say why a site has no private layers to be scored with; empty where it has, or needs none."""
        policies = self.server.policies
        if not policies.scorable(role, model.round):
            return "it trains nothing" if role == "evaluate" else "it trained them without labels"
        kept_here = set(policies.of(role, model.round).private(model.tensors))
        begun = model.round > START and kept_here.difference(policies.released_statistics(role, model.round))
        return "none of its updates entered the model" if begun and site not in model.private else ""

    def best_model_tasks(self) -> dict[str, Task]:
        """Labelled sites test the model that each itself scored best and has kept; one alone has chosen it for all.

        Not in a control, which is compared by the selected model.
        """
        sites, last = self.selection.sites, self.server.rounds - 1
        chosen = self.selection.best_round is not None and not is_control(self.study.name)
        choosing = sites if len(sites) > 1 and chosen else []
        return {
            site: replace(self.server.task("evaluate", site, last), model=SITE_BEST, tensors={}) for site in choosing
        }

    def alone_tasks(self) -> dict[str, Task]:
        """Labelled sites test the model that each trained alone and has kept, where the study asks what they gain."""
        server, last = self.server, self.server.rounds - 1
        sites = self.study.of_role("supervised") if self.study.gain else []
        return {site: replace(server.task("evaluate", site, last), model=ALONE, tensors={}) for site in sites}

    def finish(
        self, test: Metrics, others: Mapping[str, Metrics] | None = None, kept: Mapping[str, Metrics] | None = None
    ) -> None:
        """Write the result of the run: test scores of the selected model and, where asked for, of others by name.

        Args:
            kept: the same of models that sites have kept, ``own`` and ``alone``, and with ``released`` layers.
        """
        chosen, score = self.selection, self.server.score
        test, kept = self._tested(test), {name: self._tested(scores) for name, scores in (kept or {}).items()}
        site_best = kept.get(SITE_BEST)
        others = {name: self._tested(scores) for name, scores in (others or {}).items()}
        tested = self._rows(SELECTED, test)
        result: dict[str, Any] = {
            "best_round": chosen.best_round,
            "best_score": chosen.best_score if chosen.scored else None,
            "last_score": self.last_score,
            "validation": chosen.best_scores,
            "validation_last": self.last_scores,
            "selected_by": chosen.sites,
            "contributed": {site: self.server.counted.get(site, 0) for site in self.study.of_role(*TRAINING_ROLES)},
            "test": tested,
            "seconds_total": time.monotonic() - self.server.started,
        }
        if self.mean is not None:
            result["mean_of"] = sorted(self.server.newest.models)
        if self.server.stopping.reason:
            result["stopped_early"] = {"rounds": self.server.rounds, "reason": self.server.stopping.reason}
        result |= {f"test_{name}": self._rows(name, scores) for name, scores in others.items()}
        if len(chosen.sites) == 1 and chosen.best_round is not None:
            site_best = {
                site: {**test[site], "model_round": chosen.best_round} for site in chosen.sites if site in test
            }
        if site_best:
            result["test_own"] = self._rows(SITE_BEST, site_best)
        for name in (RELEASED, ALONE):
            if scores := kept.get(name):
                result[f"test_{name}"] = self._rows(name, scores)
        if self.refused_numbers:
            result["refused_numbers"] = dict(sorted(self.refused_numbers.items()))
        if self.untested:
            result["untested"] = dict(sorted(self.untested.items()))
        if self.server.exchange.references:
            result["references"] = self.server.exchange.references
        if self.personal_layers.records:
            result["releases"] = self.personal_layers.records
        for site, row in tested.items():
            if row.get("n_cases"):
                owner = f", {decoder_source(row['decoder_of'])}" if "decoder_of" in row else ""
                log.info("%s: test %s over %d cases%s", site, score.text(row), row["n_cases"], owner)
        self.server.record.result(result)
        self.server.checkpoints.remove()

    def _tested(self, answers: Metrics) -> dict[str, dict[str, float]]:
        """Test scores of a model that count."""
        reported = self.server.reported
        return {site: self._noted(site, *reported.test(site, sent)) for site, sent in sorted(answers.items())}

    def _noted(self, site: str, kept: dict[str, float], wrong: list[str]) -> dict[str, float]:
        for text in wrong:
            log.warning("site '%s': %s", site, text)
            self.refused_numbers.setdefault(site, []).append(text)
        return kept

    def _rows(self, model: str, test: Metrics) -> dict[str, dict[str, Any]]:
        """Each site's scores, and whose private layers made them if not its own."""
        owners = {site: {"decoder_of": owner} for (name, site), owner in self.decoder_of.items() if name == model}
        return {site: {**metrics, **owners.get(site, {})} for site, metrics in sorted(test.items())}


def _test(closing: Closing, ask: Ask, model: str) -> dict[str, dict[str, float]]:
    closing.take_release(ask(closing.release_tasks(model)), model)
    return ask(closing.evaluation_tasks(model))
