"""What happens in one round at a site."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from monai.bundle import ConfigParser
from torch import Tensor

from fedmed.aggregation.sharing import SharingPolicy
from fedmed.bundles.contract import Use
from fedmed.bundles.load import Bundle
from fedmed.bundles.network import initial_network, merge, named_tensors, parsed, seed_everything
from fedmed.data.datalist import list_entries, load_datalist
from fedmed.engines.corrected_steps import Corrections
from fedmed.engines.handlers import AbortHandler, NonFiniteLossHandler, ProgressHandler
from fedmed.errors import BundleError, DataError, JobError
from fedmed.federation.progress import Progress, Stream
from fedmed.federation.release import hand_out
from fedmed.federation.site_parser import listed, site_parser, steps_facts
from fedmed.jobs.plan import OPTIMIZER_STATES, PROGRESS_LINES, ROLES
from fedmed.jobs.role_sharing import policy_of_round
from fedmed.kinds.sound_bundle import check_bundle
from fedmed.messages.answers import Extras, Release, Update
from fedmed.messages.task import Task
from fedmed.recovery.site_state import SiteState
from fedmed.seeds import derive_seed
from fedmed.settings.site import SiteConfig

log = logging.getLogger("fedmed.site")


class Client:
    """One site's side of a federation.

    Args:
        site: the site's own facts.
        folder: the job's folder at this site; private state, progress and evaluation lie there.
        bundle: name of the bundle.
        role: ``supervised`` (has labels), ``unsupervised`` or ``evaluate`` (never trains).
        overlays: overlays of the bundle, the method's last.
        overrides: plain values for settings that the bundle lists as overridable.
        sharing: sharing group, ``full`` or one of the bundle's partial ones.
        buffers: policy for BatchNorm buffers; ``local`` keeps them at the site.
        warm_start_rounds: first rounds of the job, in which ``warm_start_sharing`` applies.
        warm_start_sharing: sharing group in those rounds; None = ``sharing``.
        sends: sharing group that the role sends, if less than it receives.
        seed: the job's seed.
        optimizer_state: ``persist`` across rounds or ``reset`` each round.
        study: digest of the site's copy of the study; None = tasks are taken whatever theirs is.
        should_abort: asked before every iteration.
        stream: receives scalars for TensorBoard.
    """

    def __init__(
        self,
        site: SiteConfig,
        folder: Path,
        *,
        bundle: str,
        role: str,
        overlays: list[str] | None = None,
        overrides: Mapping[str, Any] | None = None,
        sharing: str = "full",
        buffers: str = "average",
        warm_start_rounds: int = 0,
        warm_start_sharing: str | None = None,
        sends: str | None = None,
        seed: int = 0,
        optimizer_state: str = "persist",
        study: str | None = None,
        should_abort: Callable[[], bool] | None = None,
        stream: Stream | None = None,
    ) -> None:
        if role not in ROLES:
            raise JobError(f"site '{site.site}': role '{role}' is unknown; use one of {', '.join(ROLES)}")
        if optimizer_state not in OPTIMIZER_STATES:
            raise JobError(f"optimizer_state '{optimizer_state}' is unknown; use {' or '.join(OPTIMIZER_STATES)}")
        self.site, self.role, self.seed, self.folder = site, role, seed, Path(folder)
        self.bundle = Bundle(bundle, overlays or (), overrides, site.bundles)
        check_bundle(self.bundle, Use(role))
        self.sharing = {
            "sharing": sharing,
            "buffers": buffers,
            "warm_start_rounds": warm_start_rounds,
            "warm_start_sharing": warm_start_sharing,
            "sends": sends,
        }
        self.study = study
        self.keep_optimizer = optimizer_state == "persist"
        self.should_abort = should_abort or (lambda: False)
        made_with = {"seed": seed, "overlays": list(overlays or ()), "overrides": dict(overrides or {})}
        self.state = SiteState(self.folder, {**made_with, "optimizer_state": optimizer_state, **self.sharing})
        self.progress = Progress(site.site, self.folder, stream)

    @classmethod
    def from_args(cls, args: Mapping[str, Any], site: SiteConfig, folder: Path, **hooks: Any) -> "Client":
        """Build a client from what a study says of its role.

        Raises:
            JobError: an argument that no client knows.
        """
        try:
            return cls(site, folder, **args, **hooks)
        except TypeError as error:
            raise JobError(f"site '{site.site}': the job's arguments of its role are wrong: {error}") from error

    def answer(self, task: Task) -> Update | Extras | Release | dict[str, float]:
        """Do what a task asks for.

        Raises:
            JobError: the server works on another study than the one that this site has.
        """
        if self.study is not None and task.study != self.study:
            raise JobError(
                f"site '{self.site.site}': the server's study (hash {task.study[:12] or 'none'}) is not this site's "
                f"({self.study[:12]}); submit the job again as scripts/package_job.py wrote it, the same for all"
            )
        work = {"train": self.train, "metadata": self.metadata, "validate": self.validate}
        return {**work, "release": self.release, "evaluate": self.evaluate}[task.name](task)

    def train(self, task: Task) -> Update:
        """Score the received model if asked, train it for so many steps or epochs and return the difference.

        The private state is on disk before this returns: the process may end right after.
        """
        started = monotonic()
        self._mention_unused()
        parser, network, policy, before, state = self._open(task, epoch_length=task.steps, max_epochs=1)
        task = replace(task, steps=parser["epoch_length"] if task.epochs else task.steps)
        optimizer = parsed(parser, "optimizer")
        if self.keep_optimizer and "optimizer" in state:
            rates = [group["lr"] for group in optimizer.param_groups]
            optimizer.load_state_dict(state["optimizer"])
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate  # the bundle's for this round, not the one of the round before
        metrics = self._score(task, parser) if task.validate else {}
        engine, extras = state.get("engine", {}), {}
        if task.steps:
            seed_everything(derive_seed(self.seed, self.site.site, task.round, "training"))
            trainer = parsed(parser, "train#trainer")
            corrections = Corrections(listed(parser, "train", "corrections"))
            trainer.load_state_dict(engine)
            corrections.load_state_dict(engine)
            if others := corrections.receive(task.extras):
                trainer.receive(others)
            time = {"round": task.round, "rounds": task.total_rounds, "steps": task.steps}
            time |= steps_facts(task, task.steps)
            corrections.attach(trainer, policy.received(before), policy.sent(before), **time)
            metrics |= self._run(trainer, task, listed(parser, "train", "federated_handlers"))
            engine, extras = corrections.kept_with(trainer.state_dict()), {**trainer.extras(), **corrections.extras()}
        after = named_tensors(network)
        kept = {task.private_round, *task.keep_rounds} - {None}
        for round in kept:  # the selected model's state may lie in an earlier job of the run
            self.state.take_over(round)
        self.state.prune(kept)
        private = {name: after[name] for name in policy.private(after)}
        self.state.save(task.round, private, optimizer=optimizer.state_dict(), engine=engine)
        self.state.let_go()
        metrics["seconds"] = monotonic() - started
        difference = {name: after[name] - before[name] for name in policy.sent(after)}
        self.progress.event("end", task, **metrics)
        n_samples = len(parsed(parser, "train#data"))
        return Update(self.site.site, task.round, difference, task.steps, n_samples, metrics, extras)

    def _mention_unused(self) -> None:
        """A supervised site trains on masks alone; say so rather than leave scans unused in silence."""
        if self.role != "supervised":
            return
        if unused := load_datalist(self.site.data_root, self.site.datalist, "unlabeled", required=False):
            hint = "give it the role 'unsupervised' to learn from both lists"
            log.warning(
                "%s: %d unlabelled scans are not used by a supervised site; %s", self.site.site, len(unused), hint
            )

    def metadata(self, task: Task) -> Extras:
        """Compute with the received model what other sites get of this one; the bundle's ``metadata#provider`` does it.

        The model is on disk before this returns: the task to train comes without it, and maybe to another process.
        """
        parser, *_ = self._open(task)
        provider = parsed(parser, "metadata#provider")
        seed_everything(derive_seed(self.seed, self.site.site, task.round, "metadata"))
        values = provider(before_batch=AbortHandler(self.should_abort).check)
        self.state.hold(task.round, task.tensors)
        self.progress.event("end", task, values=len(values))
        return Extras(self.site.site, task.round, dict(values))

    def validate(self, task: Task) -> dict[str, float]:
        """Score the received model on the site's validation list."""
        parser, *_ = self._open(task)
        metrics = self._score(task, parser)
        self.progress.event("end", task, score=metrics[self.bundle.score.validation])
        return metrics

    def evaluate(self, task: Task) -> dict[str, float]:
        """Score the received model on the site's testing list.

        Returns only what the bundle's recorder makes of all cases together, such as mean, standard deviation and their
        number; per-case results and pictures stay at the site, in ``evaluation/`` for the selected model and
        ``evaluation_last/`` for the last aggregate.
        """
        if not list_entries(self.site.datalist, "testing"):
            log.info("%s: %s has no 'testing' list; nothing to evaluate", self.site.site, self.site.datalist)
            return {"n_cases": 0}
        folder = self.folder / ("evaluation_last" if task.model == "last" else "evaluation")
        parser, *_ = self._open(task, evaluation_dir=str(folder))
        evaluator, recorder = parsed(parser, "evaluate#evaluator"), parsed(parser, "evaluate#recorder")
        recorder.attach(evaluator)
        AbortHandler(self.should_abort).attach(evaluator)
        evaluator.run()
        metrics = recorder.finish()
        self.progress.event("end", task, score=metrics.get(self.bundle.score.test, math.nan))
        return metrics

    def release(self, task: Task) -> Release:
        """Hand out the private layers that belong to a round, if the site's own settings allow it."""
        self.progress.event("start", task)
        self.state.earlier = task.earlier
        answer = hand_out(self.site, self.state, task)
        self.progress.event("end", task, released=len(answer.tensors))
        return answer

    def _open(self, task: Task, **facts: Any) -> tuple[ConfigParser, torch.nn.Module, SharingPolicy, dict, dict]:
        """Build a fresh model and fill it with what was received and with the site's private tensors."""
        if task.bundle_digest and task.bundle_digest != self.bundle.digest:
            raise BundleError(
                f"bundle '{self.bundle.name}' at {self.bundle.root} differs from the server's (hash "
                f"{self.bundle.digest[:12]} here, {task.bundle_digest[:12]} there); install the same version"
            )
        torch.set_num_threads(self.site.threads)
        parser = self._parser(task, facts)
        self.progress.event("start", task, steps=parser["epoch_length"] if task.epochs else task.steps)
        network = initial_network(parser, self.seed)
        own = named_tensors(network)
        self.state.earlier = task.earlier
        policy = policy_of_round(own, self.bundle.groups(network), task.round, **self.sharing)
        needs_state = task.name == "train" or policy.private(own)
        state = self.state.load(task.private_round) if needs_state else {}
        received = self.state.held(task.round) if task.reuse else task.tensors
        before = merge({**own, **state.get("private", {})}, received, policy.received(own))
        network.load_state_dict(before, strict=True)
        return parser, network, policy, before, state

    def _parser(self, task: Task, facts: Mapping[str, Any]) -> ConfigParser:
        return site_parser(self.bundle, self.site, self.folder, task, self.seed, facts)

    def _score(self, task: Task, parser: ConfigParser) -> dict[str, float]:
        """Return the scalars ``val_…`` of the received model on the validation list, the bundle's score among them."""
        evaluator = parsed(parser, "validate#evaluator")
        AbortHandler(self.should_abort).attach(evaluator)
        evaluator.run()
        found = {name: _number(value) for name, value in evaluator.state.metrics.items() if name.startswith("val_")}
        score = self.bundle.score
        value = found.get(score.validation, math.nan)
        if not math.isfinite(value):
            raise DataError(
                f"site '{self.site.site}': validation {score.label} is {value}; "
                f"is 'validation' in {self.site.datalist} empty?"
            )
        self.progress.validated(task, score, value)
        return {name: number for name, number in found.items() if math.isfinite(number)}

    def _run(self, trainer: Any, task: Task, handlers: Sequence[Any]) -> dict[str, float]:
        """Train and return the round's mean of every scalar that the engine reports."""
        sums: dict[str, float] = {}
        done = 0

        def note(step: int, steps: int, scalars: dict[str, float]) -> None:
            nonlocal done
            for name, value in scalars.items():  # means since the last report
                sums[name] = sums.get(name, 0.0) + value * (step - done)
            done = step
            self.progress.step(task, step, steps, scalars)

        AbortHandler(self.should_abort).attach(trainer)
        NonFiniteLossHandler().attach(trainer)
        ProgressHandler(note, max(1, task.steps // PROGRESS_LINES)).attach(trainer)
        for handler in handlers:
            handler.attach(trainer)
        trainer.run()
        return {f"train_{name}": total / task.steps for name, total in sums.items()}


def _number(value: Any) -> float:
    """A metric as a number; NaN if it is none, such as a value for each class."""
    single = isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)
    return float(value) if single else math.nan
