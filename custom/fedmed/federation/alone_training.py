"""Training of a labelled site's own model beside the federation's, so that the site sees what it gains."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import initial_network, named_tensors
from fedmed.data.datalist import list_entries
from fedmed.errors import Aborted, FedMedError
from fedmed.federation.opened_model import (
    IsAborted,
    OpenedModel,
    opened_with,
    site_parser,
    train_round,
    validation_scores,
)
from fedmed.federation.own_best import OwnBest
from fedmed.jobs.job import Job, RolePolicies
from fedmed.messages.task import Task
from fedmed.recovery.site_state import ALONE, ALONE_MODEL, SiteState
from fedmed.settings.site import SiteConfig
from fedmed.training.corrected_steps import Corrections

log = logging.getLogger("fedmed.site")


class AloneTraining:
    """A labelled site's own model, which is trained as in the federation but for all that comes from other sites.

    Network, starting weights, images, augmentation, steps and schedule are those of the site's part in the federation,
    with the same draws, in the same task and process. It has an optimizer of its own, no corrections, which pull
    towards the others' model, and no private layers, for all are. By its own validation list the site chooses among the
    models after each round. It lies with the site's private state, so that a resumed run goes on with it; nothing of it
    leaves the site but scores.

    Where the study does not ask for it, the site's settings forbid it or the site has no labels, nothing is done.
    """

    def __init__(self, job: Job, role: str, site: SiteConfig, bundle: Bundle, folder: Path, state: SiteState) -> None:
        self.job, self.role, self.site, self.bundle = job, role, site, bundle
        self.folder, self.state = folder, state
        self.best = OwnBest(site.site, bundle, state, ALONE_MODEL)
        self.wanted = job.study.gain and role == "supervised"
        if self.wanted and not site.train_alone:
            self.wanted = False
            log.warning("%s: trains no model alone: 'train_alone' is false in %s", site.site, site.source)

    def train(self, task: Task, together: OpenedModel, aborted: IsAborted) -> dict[str, Any]:
        """Train one round, and score the model before it where the task asks for scores.

        Args:
            task: of the federation's round.
            together: the federation's model as the site received it.

        Returns:
            What the site keeps with the round's private state; ``{}`` where it trains no model alone.
        """
        if not self.wanted or not (before := self._before(task, together)):
            return {}
        with self._apart("its own model stays as it was before this round"):
            return {ALONE: self._round(task, before, aborted)}
        return {ALONE: dict(before)}

    @contextmanager
    def _apart(self, consequence: str) -> Iterator[None]:
        """Log what goes wrong with the site's own model, such as a loss that is no number: the federation goes on."""
        try:
            yield
        except Aborted:
            raise
        except FedMedError as error:
            log.error("%s: %s: %s", self.site.site, consequence, error)

    def _round(self, task: Task, before: Mapping[str, Any], aborted: IsAborted) -> dict[str, Any]:
        model = self._open(task, before, epoch_length=task.steps, max_epochs=1)
        optimizer = model.optimizer(self.job.study.optimizer_state == "persist")
        if task.validate:
            self._score(task, model, aborted)
        engine = before.get("engine", {})
        if task.steps:
            known = (self.site.site, self.job.study.seed, replace(task, extras={}), model, engine)
            trainer, _ = train_round(*known, Corrections(), aborted, lambda *_: None)
            engine = trainer.state_dict()
        after = named_tensors(model.network)
        # As the server adds a difference: or else rounding would tell two equal models apart.
        tensors = {name: model.tensors[name] + (after[name] - model.tensors[name]) for name in after}
        return {"tensors": tensors, "optimizer": optimizer.state_dict(), "engine": engine}

    def validate(self, task: Task, aborted: IsAborted) -> None:
        """Score the model after the last round, which no round does."""
        if self.wanted and (last := self._kept(task)):
            with self._apart("its own model after the last round is not scored"):
                self._score(task, self._open(task, last), aborted)

    def _before(self, task: Task, together: OpenedModel) -> Mapping[str, Any]:
        """The site's model before a round: in the first round of the run the one that all sites begin with."""
        if task.round == 0 and task.private_round is None:
            return {"tensors": together.tensors}
        kept = self._kept(task)
        if not kept:
            text = "%s: has no model of its own: it did not take part in the run's first round"
            log.warning(text, self.site.site)
        return kept

    def _kept(self, task: Task) -> Mapping[str, Any]:
        return self.state.last_alone(task.private_round, before=task.round if task.name == "train" else None)

    def _open(self, task: Task, before: Mapping[str, Any], **facts: Any) -> OpenedModel:
        parser = site_parser(self.bundle, self.site, self.folder, task, self.job.study.seed, facts)
        if "train" in parser:
            parser.update({"train#corrections": []})
        network = initial_network(parser, self.job.study.seed)
        policy = RolePolicies(self.job, named_tensors(network), self.bundle.groups(network)).of(self.role, task.round)
        tensors: Mapping[str, Tensor] = before["tensors"]
        return opened_with(parser, network, policy, tensors, before)

    def _score(self, task: Task, model: OpenedModel, aborted: IsAborted) -> None:
        if list_entries(self.site.datalist, "validation"):
            scores = validation_scores(model.parser, self.bundle.score, self.site, aborted, Corrections())
            self.best.offer(task, model.tensors, scores)
