"""One round at a site."""

import logging
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from monai.bundle import ConfigParser
from torch import Tensor

from fedmed.aggregation.sharing import tensor_bytes
from fedmed.bundles.bundle_parser import named_tensors, parsed, seed_everything
from fedmed.bundles.contract import Use
from fedmed.class_paths import import_named
from fedmed.data.datalist import UNLABELED, case_names, check_class_names, list_entries
from fedmed.data.patients import TrainedOn, check_patients, owners
from fedmed.data.video.video_features import encoder_digest
from fedmed.errors import Aborted, BundleError, JobError
from fedmed.federation.alone_training import AloneTraining
from fedmed.federation.opened_model import (
    OpenedModel,
    Progress,
    Stream,
    draw_preview,
    listed,
    mention_unused,
    open_model,
    site_parser,
    test_image,
    test_scores,
    train_round,
    validation_scores,
)
from fedmed.federation.own_best import EarlierScores, OwnBest
from fedmed.federation.site_fingerprint import site_fingerprint
from fedmed.jobs.job import Job
from fedmed.kinds.find_kind import check_bundle
from fedmed.messages.answers import Answer, Extras, Release, Update
from fedmed.messages.fingerprint import NAME
from fedmed.messages.task import ALONE, SELECTED, SITE_BEST, Task
from fedmed.recovery.site_state import SiteState
from fedmed.seeds import derive_seed
from fedmed.settings.site import SiteConfig
from fedmed.training.case_recorder import EVERY_CASE, write_patients
from fedmed.training.corrected_steps import Corrections
from fedmed.training.trainer import AbortHandler

log = logging.getLogger("fedmed.site")


class Client:
    """One site's side of a federation.

    Args:
        job: as the site's own app says it, read with the site's own list of classes.
        folder: the job's folder at this site; private state, progress and evaluation lie there.
        role: in the job; None = the one that the study gives the site.
        should_abort: asked before every iteration.

    Raises:
        JobError: the study does not have the site.
        BundleError: the bundle lacks what the role needs.
    """

    def __init__(
        self,
        job: Job,
        site: SiteConfig,
        folder: Path,
        role: str | None = None,
        should_abort: Callable[[], bool] | None = None,
        stream: Stream | None = None,
    ) -> None:
        self.job, self.site, self.folder = job, site, Path(folder)
        self.role, self.seed = role or job.role(site.site), job.study.seed
        self.bundle = job.bundle(self.role, site.bundles)
        self.kind = check_bundle(self.bundle, Use(self.role))
        self.should_abort = should_abort or (lambda: False)
        self.state = SiteState(self.folder, made_with(job, self.role))
        self.best = OwnBest(site.site, self.bundle, self.state)
        self.alone = AloneTraining(job, self.role, site, self.bundle, self.folder, self.state)
        self.earlier = EarlierScores()
        self.trains_on = TrainedOn()
        self.progress = Progress(site.site, self.folder, stream)

    def answer(self, task: Task) -> Answer:
        """Do what a task asks for.

        Raises:
            JobError: the server works on another study than the one that this site has.
        """
        if task.study != self.job.digest:
            raise JobError(
                f"site '{self.site.site}': the server's study (hash {task.study[:12] or 'none'}) is not this site's "
                f"({self.job.digest[:12]}); submit the job again as fedmed study package wrote it, the same for all"
            )
        work: dict[str, Callable[[Task], Answer]] = {
            "train": self.train,
            "metadata": self.metadata,
            "validate": self.validate,
            "release": self.release,
            "evaluate": self.evaluate,
            NAME: self.fingerprint,
        }
        self.state.earlier = task.earlier
        try:
            return work[task.name](task)
        except Aborted:
            delete_every_case(self.folder)
            raise

    def train(self, task: Task) -> Update:
        """Score the received model if asked, train it for so many steps or epochs and return the difference.

        The private state is on disk before this returns: the process may end right after.
        """
        started = monotonic()
        if self.role == "supervised":
            mention_unused(self.site)
        model = self._open(task, epoch_length=task.steps, max_epochs=1)
        self._say_what_it_trains_on(task, model)
        task = replace(task, steps=model.parser["epoch_length"] if task.epochs else task.steps)
        optimizer = model.optimizer(self.job.study.optimizer_state == "persist")
        metrics = self._score(task, model) if task.validate else {}
        engine, extras, samples = model.state.get("engine", {}), dict[str, Any](), None
        if task.steps:
            engine, extras, trained, samples = self._iterate(task, model, engine)
            metrics |= trained
        after = named_tensors(model.network)
        private = {name: after[name] for name in model.policy.private(after)}
        alone = self.alone.train(task, model, self.should_abort)
        self._keep(task, private, optimizer=optimizer.state_dict(), engine=engine, **alone)
        metrics["seconds"] = monotonic() - started
        difference = {name: after[name] - model.tensors[name] for name in model.policy.sent(after)}
        self.progress.event("end", task, **metrics)
        n_samples = len(parsed(model.parser, "train#data")) if samples is None else samples
        return Update(self.site.site, task.round, difference, task.steps, n_samples, metrics, extras)

    def _say_what_it_trains_on(self, task: Task, model: OpenedModel) -> None:
        """In the site's log and progress, neither of which leaves it; again only if its lists have changed."""
        counts = count_trained(model.parser, self.site, self.role)
        if counts != self.trains_on:
            self.trains_on = counts
            log.info("%s trains on %s", self.site.site, counts.words)
            self.progress.event("data", task, **counts.facts())

    def _iterate(
        self, task: Task, model: OpenedModel, engine: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, float], int | None]:
        """Train; return the engine's state, the values that go beside the model, the means of the scalars, and how many
        images were processed, where the engine says so.
        """
        corrections, report = self._corrections(model), partial(self.progress.step, task)
        known = (self.site.site, self.seed, task, model, engine)
        trainer, means = train_round(*known, corrections, self.should_abort, report)
        sent_values = {**trainer.extras(), **corrections.extras()}
        return corrections.kept_with(trainer.state_dict()), sent_values, means, getattr(trainer, "samples", None)

    def _keep(self, task: Task, private: Mapping[str, Tensor], **content: Any) -> None:
        kept = {round for round in (task.private_round, *task.keep_rounds) if round is not None}
        for round in kept:  # the selected model's state may lie in an earlier job of the run
            self.state.take_over(round)
        self.state.prune(kept)
        self.state.save(task.round, private, **content)
        self.state.clear_cache()

    def metadata(self, task: Task) -> Extras:
        """Compute with the received model what other sites get of this one; the bundle's ``metadata#provider`` does it.

        The model is on disk before this returns: the task to train comes without it, and maybe to another process.
        """
        provider = parsed(self._open(task).parser, "metadata#provider")
        seed_everything(derive_seed(self.seed, self.site.site, task.round, "metadata"))
        values = provider(before_batch=AbortHandler(self.should_abort).check)
        self.state.cache(task.round, task.tensors)
        self.progress.event("end", task, values=len(values))
        return Extras(self.site.site, task.round, dict(values))

    def fingerprint(self, task: Task) -> Extras:
        """Measure a few of the site's images, if its own settings allow that the numbers leave."""
        allowed = NAME in self.site.privacy.allowed_extras
        values = site_fingerprint(self.site, self.kind, self.bundle, self.role, self.seed) if allowed else None
        return Extras(self.site.site, task.round, {} if values is None else {NAME: values})

    def validate(self, task: Task) -> dict[str, float]:
        """Score the received model on the site's validation list; nothing without one."""
        metrics = self._score(task, self._open(task))
        self.alone.validate(task, self.should_abort)
        self.progress.event("end", task, score=metrics.get(self.bundle.score.validation, math.nan))
        return metrics

    def evaluate(self, task: Task) -> dict[str, float]:
        """Score the received model, or the site's own best, on the site's testing list.

        Returns only what the bundle's recorder makes of all cases together, such as mean, standard deviation and their
        number, and of its own best the round after which it was aggregated, ``model_round``; per-case results and
        pictures stay at the site, in ``evaluation/``, and of other models in ``evaluation_last/``,
        ``evaluation_first/`` and ``evaluation_own/``.
        """
        entries = list_entries(self.site.datalist, "testing")
        if not entries:
            log.info("%s: %s has no 'testing' list; nothing to evaluate", self.site.site, self.site.datalist)
            self._preview(task)
            return {"n_cases": 0}
        alone = self.state.alone(task.private_round) if task.model == ALONE else {}
        if task.model == ALONE and not alone:
            log.info("%s: trained no model alone, so there is nothing to compare", self.site.site)
            return {"n_cases": 0}
        folder = self.folder / ("evaluation" if task.model == SELECTED else f"evaluation_{task.model}")
        model = self._open(task, alone, evaluation_dir=str(folder))
        metrics = self._tested(task, model, folder)
        if any(patients := [str(entry.get("patient") or "") for entry in entries]):
            write_patients(folder, case_names(entries), patients)
        if task.model == SITE_BEST:
            metrics["model_round"] = model.state["round"]
        if task.model == ALONE:
            metrics |= self._gain(model)
        self.progress.event("end", task, score=metrics.get(self.bundle.score.test, math.nan))
        return metrics

    def _gain(self, model: OpenedModel) -> dict[str, float]:
        """Write the hospital's page, which stays here, and return its numbers of all cases together."""
        job, images = self.job, partial(test_image, model.parser)
        try:
            gained = import_named(self.kind.gain)
            numbers: dict[str, float] = gained(
                self.site, self.folder, self.bundle, job.method, job.recorded, images=images
            )
        finally:
            delete_every_case(self.folder)  # the page holds those that it shows
        return numbers

    def _tested(self, task: Task, model: OpenedModel, folder: Path) -> dict[str, float]:
        corrections = self._scoring(task, model)
        if corrections.change_scoring:  # in a way that belongs to a round
            scores = test_scores(model.parser, self.should_abort, corrections, self.alone.wanted)
            if task.model == SELECTED and corrections.decisions:
                self.progress.event("adapted", task, words=corrections.decisions)
            return scores
        digest = encoder_digest(model.network)
        if (metrics := self.earlier.again(digest, folder)) is None:
            metrics = test_scores(model.parser, self.should_abort, corrections, self.alone.wanted)
            self.earlier.keep(digest, metrics, folder)
        return metrics

    def _preview(self, task: Task) -> None:
        """Draw what the selected model makes of some images that nobody has marked; the pictures stay at the site."""
        if task.model == SELECTED and "preview" in self.bundle.parser():
            model = self._open(task, evaluation_dir=str(self.folder / "evaluation"))
            draw_preview(model.parser, self.should_abort, self._scoring(task, model))

    def release(self, task: Task) -> Release:
        """Hand out the private layers that belong to a round, if the site's own settings allow it."""
        self.progress.event("start", task)
        answer = hand_out(self.site, self.state, task)
        self.progress.event("end", task, released=len(answer.tensors))
        return answer

    def _open(self, task: Task, alone: Mapping[str, Any] | None = None, **facts: Any) -> OpenedModel:
        """Build a fresh model and fill it with what was received and with the site's private tensors.

        Args:
            task: what is asked for.
            alone: state of the model trained alone, where the task is about that one.
            facts: values of the bundle's configuration.
        """
        if task.bundle_digest and task.bundle_digest != self.bundle.digest:
            raise BundleError(
                f"bundle '{self.bundle.name}' at {self.bundle.root} differs from the server's (hash "
                f"{self.bundle.digest[:12]} here, {task.bundle_digest[:12]} there); install the same version"
            )
        check_patients(self.site.datalist)
        if self.kind.labelled:
            names = [one.name for one in self.bundle.classes]
            check_class_names(self.site.datalist, self.kind.form(names), names)
        torch.set_num_threads(self.site.threads)
        parser = site_parser(self.bundle, self.site, self.folder, task, self.seed, facts)
        self.progress.event("start", task, steps=parser["epoch_length"] if task.epochs else task.steps)
        for folder in self.state.earlier_jobs() + ([self.folder] if task.name != "evaluate" else []):
            delete_every_case(folder)  # of a job that was killed before it wrote the page
        return open_model(parser, self.bundle, self.job, self.role, task, self.state, alone)

    def _score(self, task: Task, model: OpenedModel) -> dict[str, float]:
        entries, name = list_entries(self.site.datalist, "validation"), self.site.site
        if not entries:
            text = "%s: %s has no 'validation' list; models are chosen by other sites, or the last round's counts"
            log.warning(text, name, self.site.datalist)
            return {}
        corrections = self._scoring(task, model)
        scores = validation_scores(model.parser, self.bundle.score, self.site, self.should_abort, corrections)
        self.progress.validated(task, self.bundle.score, scores[self.bundle.score.validation])
        self.best.offer(task, model.tensors, scores)
        if len(entries) == 1 and self.site.privacy.min_cases > 1:
            log.warning("%s: the score of its only 'validation' case stays here; other sites choose the model", name)
            return {}
        return scores

    def _corrections(self, model: OpenedModel) -> Corrections:
        """Those of the configuration, then those that the method makes itself."""
        return Corrections([*listed(model.parser, "train", "corrections"), *self.job.method.corrections(model.network)])

    def _scoring(self, task: Task, model: OpenedModel) -> Corrections:
        """The site's corrections, as they were after the round that the site goes on from."""
        corrections = Corrections() if task.model == ALONE else self._corrections(model)
        if self.role == "evaluate":
            corrections.trains = False
            corrections.receive(task.extras)
        elif task.name == "evaluate" and self.role == "unsupervised" and task.extras:  # it had not trained by then
            corrections.receive(task.extras)
            corrections.begin_without_training()
        elif corrections.change_scoring:
            # Of its own best model a site keeps the tensors alone.
            state = model.state if "engine" in model.state else self.state.load(task.private_round)
            corrections.load_state_dict(state.get("engine", {}))
        return corrections


def delete_every_case(folder: Path) -> None:
    """Delete the pictures of all cases, by which two models are compared, from the folder of a site's job."""
    for pictures in folder.glob(f"evaluation*/{EVERY_CASE}"):
        shutil.rmtree(pictures, ignore_errors=True)


def made_with(job: Job, role: str) -> dict[str, Any]:
    """Plain values on which a role's private state depends; one that was made with others is not continued."""
    study = job.study
    return {
        "seed": study.seed,
        "overlays": job.overlays(role),
        "overrides": job.overrides(role),
        "optimizer_state": study.optimizer_state,
        "sharing": job.group(role),
        "buffers": job.buffers(role),
        "warm_start_rounds": study.warm_start.rounds,
        "warm_start_sharing": study.warm_start.sharing,
        "sends": job.method.role(role).sends,
    }


def count_trained(parser: ConfigParser, site: SiteConfig, role: str) -> TrainedOn:
    """Count the images, or videos, that a round reads, with and without their labels, and whose they are.

    A bundle's ``train`` reads the list of the site's role; beside images without labels ``labeled`` reads others.

    Raises:
        DataError: a list cannot be read.
        BundleError: a list of the configuration cannot be built.
    """
    files, what = _files(parser, "train")
    listed, others = (owners(site.data_root, site.datalist, key, what) for key in ("training", UNLABELED))
    if role == "supervised":
        return TrainedOn.of(files, [], listed, len(listed), what)
    labelled, _ = _files(parser, "labeled")
    return TrainedOn.of(labelled, files, {**others, **listed}, what=what)


def _files(parser: ConfigParser, part: str) -> tuple[list[str], str]:
    """Files that a part of the configuration reads, and whether they are images or videos."""
    if f"{part}#videos" in parser:
        return [str(name) for name in parsed(parser, f"{part}#videos").names], "video"
    cases = parsed(parser, f"{part}#data") if f"{part}#data" in parser else []
    return [str(case["image"]) for case in cases if isinstance(case, Mapping) and "image" in case], "image"


def hand_out(site: SiteConfig, state: SiteState, task: Task) -> Release:
    """Answer a ``release`` task at the site; nothing but the site's own settings can allow it.

    Raises:
        StateError: allowed, but the asked round's state is missing or damaged.
    """
    if not site.allow_release:
        log.warning(
            "%s: the job asks for this site's private layers; nothing is released, because 'allow_release' is not "
            "true in %s",
            site.site,
            site.source,
        )
        return Release(site.site, task.private_round)
    tensors = state.load(task.private_round).get("private", {})
    log.warning(
        "%s: releases its %d private tensors of round %s (%d bytes) to the server, which scores other sites with "
        "them; allowed by %s",
        site.site,
        len(tensors),
        task.private_round,
        tensor_bytes(tensors),
        site.source,
    )
    if task.keep:
        known = (site.site, site.allow_kept_release, site.source)
        log.warning("%s: the job would keep the mean of all sites' for an export: allowed %s, by %s", *known)
    return Release(site.site, task.private_round, True, tensors, task.keep and site.allow_kept_release)
