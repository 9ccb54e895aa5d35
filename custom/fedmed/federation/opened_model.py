"""A task's model at a site: configured and built anew, filled with what the site received and kept, and run."""

import logging
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser
from torch import Tensor, nn

from fedmed.aggregation.sharing import SharingPolicy
from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import initial_network, merge, named_tensors, parsed, seed_everything
from fedmed.bundles.score import Score
from fedmed.bundles.site_facts import check_attributes
from fedmed.data.datalist import UNLABELED, list_entries
from fedmed.durable_files import append_json
from fedmed.errors import BundleError, DataError, StateError
from fedmed.jobs.job import Job, RolePolicies
from fedmed.messages.task import ALONE, SITE_BEST, Task
from fedmed.privacy.live_scalars import PROGRESS_LINES
from fedmed.recovery.site_state import SiteState
from fedmed.seeds import derive_seed
from fedmed.settings.site import SiteConfig
from fedmed.training.corrected_steps import Corrections
from fedmed.training.trainer import AbortHandler, NonFiniteLossHandler, ProgressHandler

log = logging.getLogger("fedmed.site")
Stream = Callable[[str, float, int], None]
READS_VALIDATION = re.compile("@validate(::|#)")
IsAborted = Callable[[], bool]  # whether the job was aborted
Report = Callable[[int, int, dict[str, float]], None]  # (step, steps, scalars: means since the last report)


class Progress:
    """Progress of one site.

    Args:
        folder: the job's folder at this site; ``progress.jsonl`` is written there.
        stream: called with (name, value, global step) for every scalar that the server may see.
    """

    def __init__(self, site: str, folder: Path, stream: Stream | None = None) -> None:
        self.site, self.path = site, folder / "progress.jsonl"
        self.stream = stream or (lambda name, value, step: None)

    def event(self, event: str, task: Task, **values: float | str | int) -> None:
        """Append one line: ``start``, ``data``, ``adapted``, ``step``, ``validated``, ``end`` or ``error``."""
        plain = {k: v for k, v in values.items() if not isinstance(v, float) or math.isfinite(v)}
        line = {"time": time.time(), "event": event, "task": task.name, "round": task.round}
        try:
            append_json(self.path, {**line, "total_rounds": task.total_rounds, **plain})
        except OSError as error:  # a full disk must not hide what is being reported
            log.warning("%s: %s cannot be written: %s", self.site, self.path, error)

    def step(self, task: Task, step: int, steps: int, scalars: dict[str, float]) -> None:
        """Report the scalars of an optimizer step, locally and to the server."""
        self.event("step", task, step=step, steps=steps, **scalars)
        for name, value in scalars.items():
            if math.isfinite(value):
                self.stream(f"train/{name}", value, task.round * task.steps + step)

    def validated(self, task: Task, score: Score, value: float) -> None:
        """Report the score of a received model on the site's validation list."""
        log.info(
            "%s: round %d: the received model scores %s %.4f on the validation list",
            *(self.site, task.round, score.label, value),
        )
        self.event("validated", task, score=value)
        self.stream(f"validation/{score.name}", value, task.round)


def site_facts(site: SiteConfig) -> dict[str, Any]:
    """Ids of a configuration that only the site knows -> values, whatever the task."""
    return {
        "dataset_dir": str(site.data_root),
        "datalist": str(site.datalist),
        "device": site.device,
        "amp": site.amp,
        "num_workers": site.workers,
        "cache_dir": str(site.cache_dir),
        "site_min_images": site.privacy.extras_min_images,
        **site_attributes(site),
    }


def site_attributes(site: SiteConfig) -> dict[str, Any]:
    """Facts by which a network may know at which site it is; they stay there."""
    return {"site_name": site.site, "site_words": dict(site.words)}


def site_parser(
    bundle: Bundle, site: SiteConfig, folder: Path, task: Task, seed: int, facts: Mapping[str, Any]
) -> ConfigParser:
    """Return the bundle's configuration with the site's own facts and what the task asks for.

    Args:
        task: its round, the site's place, and epochs, from which ``epoch_length`` follows.
        facts: further ids -> values; those that the configuration does not have are left out.

    Raises:
        BundleError: the configuration cannot be read, or for epochs its training list cannot be built.
        SiteConfigError: the bundle needs a word that the site's YAML does not have.
        DataError: for epochs, the site's training list cannot be read.
    """
    place = {} if task.site_count is None else {"site_index": task.site_index, "site_count": task.site_count}
    parser = bundle.parser(
        **site_facts(site),
        output_dir=str(folder / "bundle"),
        round=max(task.round, 0),
        rounds=task.total_rounds,
        epochs_before=max(task.round, 0) * (task.epochs or 1),
        seed=derive_seed(seed, site.site, task.round, "sampling"),
        augment_seed=derive_seed(seed, site.site, task.round, "augmentation"),
        **place,
        **facts,
    )
    check_attributes(parser, site.words, site.source, bundle.name)
    # What a stand-alone training does around itself (checkpoints, validation) is the federation's work here; what a
    # method needs in a federation is listed under `train#federated_handlers`.
    parts = [part for part in ("train", "validate", "evaluate") if part in parser]
    parser.update({f"{part}#handlers": [] for part in parts})
    _leave_out_validation(parser, site)
    if site.max_batch_size and parser["batch_size"] > site.max_batch_size:
        log.warning("%s: batch size %d cut to this site's max_batch_size", site.site, parser["batch_size"])
        parser["batch_size"] = site.max_batch_size
    if task.epochs:  # before anything is built from it: a later change would make all of it anew
        batches = task.epochs * len(parsed(parser, "train#data")) / parser["batch_size"]
        parser["epoch_length"] = max(1, math.ceil(batches - 1e-9))  # 0.07 · 100 is 7.000000000000001
    if task.steps or task.epochs:
        parser.update(steps_facts(task, parser["epoch_length"]))
    return parser


def _leave_out_validation(parser: ConfigParser, site: SiteConfig) -> None:
    """Corrections get None for what reads the validation list, where the site has none."""
    corrections = (parser["train#corrections"] or []) if "train#corrections" in parser else []
    reading = [
        f"train#corrections#{number}#{name}"
        for number, values in enumerate(corrections)
        for name, value in values.items()
        if READS_VALIDATION.match(str(value))
    ]
    if reading and not list_entries(site.datalist, "validation"):
        parser.update(dict.fromkeys(reading))


def mention_unused(site: SiteConfig) -> None:
    """A supervised site trains on masks alone; say so rather than leave scans unused in silence."""
    if unused := list_entries(site.datalist, UNLABELED):
        hint = "give it the role 'unsupervised' to learn from both lists"
        log.warning("%s: %d unlabelled scans are not used by a supervised site; %s", site.site, len(unused), hint)


def steps_facts(task: Task, steps: int) -> dict[str, int]:
    """Steps before this round and in all rounds, if each has ``steps``; rounds that a site sits out count too."""
    return {"steps_before": max(task.round, 0) * steps, "steps_total": task.total_rounds * steps}


def listed(parser: ConfigParser, part: str, name: str) -> list[Any]:
    """Build the objects that a part of the configuration lists under a name; [] where it lists none.

    Raises:
        BundleError: they cannot be built, or it is not a list.
    """
    id = f"{part}#{name}"
    if id not in parser or not parser[id]:
        return []
    objects = parsed(parser, id)
    if not isinstance(objects, list):
        raise BundleError(f"'{part}#{name}' is a {type(objects).__name__}; it must be a list")
    return objects


@dataclass(frozen=True)
class OpenedModel:
    """A task's model at a site.

    Attributes:
        network: filled with ``tensors``.
        policy: which tensors the site receives, sends and keeps.
        tensors: before training.
        state: what the site kept of the round that it goes on from, or of its own best model; ``{}`` at its start.
    """

    parser: ConfigParser
    network: nn.Module
    policy: SharingPolicy
    tensors: Mapping[str, Tensor]
    state: Mapping[str, Any]

    def optimizer(self, persist: bool) -> Any:
        """The bundle's optimizer, with the state of the round before if it shall persist."""
        optimizer = parsed(self.parser, "optimizer")
        if persist and "optimizer" in self.state:
            rates = [group["lr"] for group in optimizer.param_groups]
            optimizer.load_state_dict(self.state["optimizer"])
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate  # the bundle's for this round, not the one of the round before
        return optimizer


def open_model(
    parser: ConfigParser,
    bundle: Bundle,
    job: Job,
    role: str,
    task: Task,
    kept: SiteState,
    alone: Mapping[str, Any] | None = None,
) -> OpenedModel:
    """Build the model of a task.

    Args:
        alone: state of the model that the site trained alone, where the task is about that one.

    Raises:
        SharingError: what was received does not fit the network.
        StateError: what the site kept is missing or damaged.
    """
    network = initial_network(parser, job.study.seed)
    local = named_tensors(network)
    policy = RolePolicies(job, local, bundle.groups(network)).of(role, task.round)
    if task.model in (SITE_BEST, ALONE):  # whole, with private layers: nothing of it comes with the task
        best = kept.best() if task.model == SITE_BEST else alone
        if not best:
            raise StateError(f"{kept.folder} holds no such model: this site has scored none of the run")
        return opened_with(parser, network, policy, best["tensors"], best)
    needs_state = task.name == "train" or policy.private(local)
    state = kept.load(task.private_round) if needs_state else {}
    received = kept.cached(task.round) if task.reuse else task.tensors
    tensors = merge({**local, **state.get("private", {})}, received, policy.received(local))
    return opened_with(parser, network, policy, tensors, state)


def opened_with(
    parser: ConfigParser,
    network: nn.Module,
    policy: SharingPolicy,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
) -> OpenedModel:
    """Fill a network with all its tensors."""
    network.load_state_dict(tensors, strict=True)
    return OpenedModel(parser, network, policy, tensors, state)


def train_round(
    site: str,
    seed: int,
    task: Task,
    model: OpenedModel,
    engine: Mapping[str, Any],
    corrections: Corrections,
    aborted: IsAborted,
    report: Report,
) -> tuple[Any, dict[str, float]]:
    """Train a model the steps of a round; return the engine, and the round's means as of :func:`run_trainer`.

    Args:
        site, seed: of the site, and the study's seed: with the same ones the same is drawn.
        task: its extras go to the corrections that take them, and the rest to the engine.
        engine: state that engine and corrections go on from.
    """
    seed_everything(derive_seed(seed, site, task.round, "training"))
    trainer = parsed(model.parser, "train#trainer")
    trainer.load_state_dict(engine)
    corrections.load_state_dict(engine)
    if others := corrections.receive(task.extras):
        trainer.receive(others)
    time = {"round": task.round, "rounds": task.total_rounds, "steps": task.steps}
    time |= steps_facts(task, task.steps)
    received, sent = model.policy.received(model.tensors), model.policy.sent(model.tensors)
    corrections.attach(trainer, received, sent, **time, before_batch=AbortHandler(aborted).check)
    handlers = listed(model.parser, "train", "federated_handlers")
    return trainer, run_trainer(trainer, task.steps, aborted, report, handlers)


def run_trainer(
    trainer: Any, steps: int, aborted: IsAborted, report: Report, handlers: Sequence[Any]
) -> dict[str, float]:
    """Train and return the round's mean of every scalar that the engine reports, as ``train_…``."""
    sums: dict[str, float] = {}
    done = 0

    def note(step: int, steps: int, scalars: dict[str, float]) -> None:
        nonlocal done
        for name, value in scalars.items():
            sums[name] = sums.get(name, 0.0) + value * (step - done)
        done = step
        report(step, steps, scalars)

    standard = [AbortHandler(aborted), NonFiniteLossHandler(), ProgressHandler(note, max(1, steps // PROGRESS_LINES))]
    for handler in (*standard, *handlers):
        handler.attach(trainer)
    trainer.run()
    return {f"train_{name}": total / steps for name, total in sums.items()}


def draw_preview(parser: ConfigParser, aborted: IsAborted, corrections: Corrections) -> None:
    """Draw what a model makes of the cases that the bundle lists under ``preview``, if there are some."""
    if parsed(parser, "preview#cases"):
        _recorded(parser, "preview", aborted, corrections).draw()


def validation_scores(
    parser: ConfigParser, score: Score, site: SiteConfig, aborted: IsAborted, corrections: Corrections
) -> dict[str, float]:
    """Return the scalars ``val_…`` of the received model on the validation list, the bundle's score among them.

    Raises:
        DataError: the score is not a number.
    """
    evaluator = parsed(parser, "validate#evaluator")
    corrections.attach_to_scoring(evaluator)
    for handler in (AbortHandler(aborted), *listed(parser, "validate", "federated_handlers")):
        handler.attach(evaluator)
    evaluator.run()
    scores = {name: _number(value) for name, value in evaluator.state.metrics.items() if name.startswith("val_")}
    value = scores.get(score.validation, math.nan)
    if not math.isfinite(value):
        raise DataError(
            f"site '{site.site}': validation {score.label} is {value}; look at what the list 'validation' in "
            f"{site.datalist} holds"
        )
    return {name: number for name, number in scores.items() if math.isfinite(number)}


def test_scores(
    parser: ConfigParser, aborted: IsAborted, corrections: Corrections, every_case: bool = False
) -> dict[str, float]:
    """Return what the bundle's recorder makes of all cases of the testing list together.

    Args:
        every_case: write a picture of each case too, where the recorder has some: for a comparison of two models.
    """
    recorder = _recorded(parser, "evaluate", aborted, corrections)
    metrics: dict[str, float] = recorder.finish()
    if every_case and hasattr(recorder, "write_every_case"):
        try:
            recorder.write_every_case()
        except DataError as error:  # a full disk: the scores are there
            log.warning("no pictures to compare single cases by: %s", error)
    return metrics


def test_image(parser: ConfigParser, place: int) -> Any:
    """Return the image at a place of the testing list, from 0, as the network receives it, with its channels first."""
    return parsed(parser, "evaluate#evaluator").data_loader.dataset[place]["image"]


def _recorded(parser: ConfigParser, part: str, aborted: IsAborted, corrections: Corrections) -> Any:
    """Run the evaluator of a part of the configuration and return its recorder."""
    evaluator, recorder = parsed(parser, f"{part}#evaluator"), parsed(parser, f"{part}#recorder")
    recorder.attach(evaluator)
    corrections.attach_to_scoring(evaluator)
    AbortHandler(aborted).attach(evaluator)
    evaluator.run()
    return recorder


def _number(value: Any) -> float:
    """A metric as a number; NaN if it is not one, such as a value for each class."""
    single = isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)
    return float(value) if single else math.nan
