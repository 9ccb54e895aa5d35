"""Record of a run and of each of its rounds at the server: ``run.json``, ``rounds.jsonl``, ``result.json``."""

import functools
import logging
import math
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import torch

from fedmed.aggregation.geometry import update_geometry
from fedmed.aggregation.sharing import tensor_bytes
from fedmed.bundles.bundle_parser import plain_metrics
from fedmed.bundles.score import Score
from fedmed.durable_files import append_json, save_json, save_lines
from fedmed.errors import StateError
from fedmed.federation.exchange import Exchange
from fedmed.federation.open_round import OpenRound, TaskMaker, TransactionalAggregator
from fedmed.federation.reported_numbers import CollapseGuard
from fedmed.files import CHECKOUT
from fedmed.jobs.job import Job
from fedmed.jobs.study import Study
from fedmed.messages.answers import Update, extras_bytes
from fedmed.recovery.checkpoint import config_of
from fedmed.recovery.model_store import ModelStore

PACKAGES = ("fedmed", "nvflare", "monai", "torch", "numpy", "scipy", "pytorch-ignite", "nibabel", "itk")
log = logging.getLogger("fedmed.server")


class DescribedServer(Protocol):
    """Parts of :class:`fedmed.federation.server.Server` that its records describe."""

    job: Job
    study: Study
    store: ModelStore
    tasks: TaskMaker
    score: Score
    round: OpenRound
    applied: TransactionalAggregator
    exchange: Exchange
    guard: CollapseGuard | None


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that a result depends on."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"python": platform.python_version(), **versions}


def hardware() -> dict[str, Any]:
    """The server's machine, in words that name nobody."""
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"cpu_cores": os.cpu_count(), "machine": platform.machine(), "gpus": gpus}


@functools.cache
def commit() -> str | None:
    """The checkout's commit as ``git describe`` names it, ``-dirty`` when changed; None where there is no checkout."""
    command = ["git", "--no-optional-locks", "-C", str(CHECKOUT), "describe", "--always", "--dirty", "--abbrev=12"]
    if not (CHECKOUT / ".git").exists():
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):  # no git, or it refuses the folder's owner: a run needs neither
        return None
    return done.stdout.strip() or None


class RunRecord:
    """Writes ``run.json``, ``rounds.jsonl`` and ``result.json``."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def start(self, **content: Any) -> None:
        """Describe the run before its first round."""
        facts: dict[str, Any] = {"versions": package_versions(), "hardware": hardware()}
        facts |= {"commit": known} if (known := commit()) else {}
        save_json(self.folder / "run.json", {**content, **facts, "started": datetime.now(UTC).isoformat()})

    def round(self, content: Mapping[str, Any]) -> None:
        """Add one finished round."""
        try:
            append_json(self.folder / "rounds.jsonl", all_finite_numbers(content), durable=True)
        except OSError as error:
            raise StateError(f"cannot write {self.folder / 'rounds.jsonl'}: {error}; free space") from error

    def rounds(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Put the rounds of an earlier job before those of this one."""
        save_lines(self.folder / "rounds.jsonl", lines)

    def result(self, content: Mapping[str, Any]) -> None:
        """Say how the run ended; a run without this file did not finish."""
        save_json(self.folder / "result.json", all_finite_numbers(content))


def all_finite_numbers(value: Any) -> Any:
    """Return plain values with null in place of every number that is not finite, which JSON has not."""
    if isinstance(value, Mapping):
        return {key: all_finite_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [all_finite_numbers(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def run_description(server: DescribedServer) -> dict[str, Any]:
    """Describe a run before its first round: sites, bundle, settings."""
    job, study, bundle = server.job, server.study, server.store.bundle
    weights = job.rule["args"].get("user_weights") or {}
    facts: dict[str, Any] = {
        "job": study.name,
        "rounds": study.rounds,
        "sites": {site: {"role": role, "weight": weights.get(site, 1.0)} for site, role in study.sites.items()},
        "config": config_of(job, server.store),
        "bundle": bundle.name,
        "overlays": bundle.overlays,
        "seed": server.store.seed,
        "score": server.score.facts(),
        "kind": bundle.kind,
        "classes": [one.facts() for one in server.store.classes_learnt],
    }
    if isinstance(grid := bundle.parser().get("pixdim"), list):
        facts["grid"] = grid  # mm: voxels on which masks are scored
    facts["study"] = job.digest
    return facts | ({"resumed": server.tasks.earlier} if server.tasks.earlier else {})


def round_record(
    server: DescribedServer, updates: Sequence[Update], score: float | None, aggregated: bool
) -> dict[str, Any]:
    """Describe the server's round.

    Args:
        updates: those accepted, sorted by site.
        score: of the model that the round started from.
        aggregated: whether there is a new model.
    """
    sent, outcome = sum(extras_bytes(u.extras) for u in updates), server.applied.outcome
    bytes_exchanged = sum(server.exchange.received.values())
    return {
        **bare_record(server, updates, aggregated),
        "seconds": time.monotonic() - server.round.started,
        "warnings": warnings(server, updates),
        "coefficients": outcome.coefficients if outcome else {},
        "geometry": update_geometry(updates, outcome.coefficients) if outcome else {},
        "sites": {u.site: {"n_steps": u.n_steps, "n_samples": u.n_samples, **u.metrics} for u in updates},
        "score": score,
        "bytes_down": server.round.bytes_down,
        "bytes_up": sum(tensor_bytes(u.tensors) for u in updates) + sent + bytes_exchanged,
        **extras_record(server, updates, server.round.bytes_extras + bytes_exchanged + sent),
        **({"bytes_told": server.exchange.received} if server.exchange.once and bytes_exchanged else {}),
        **(outcome.facts if outcome else {}),
    }


def bare_record(server: DescribedServer, updates: Sequence[Update], aggregated: bool) -> dict[str, Any]:
    """Of a round that cannot be described: only who took part."""
    return {
        "round": server.round.number,
        "aggregated": aggregated,
        "accepted": [u.site for u in updates],
        "refused": [{"site": s, "reason": r} for s, r in sorted(server.round.refused.items())],
        "geometry": {},
        "sites": {u.site: {} for u in updates},
    }


def warnings(server: DescribedServer, updates: Sequence[Update]) -> list[dict[str, Any]]:
    """List what is unusual in a round, but no reason to stop: collapses, what sites exchange, what the rule says."""
    messages: list[dict[str, Any]] = list(server.exchange.warnings())
    messages += [{"site": site, "message": text} for site, text in sorted(server.round.wrong)]
    findings = [server.guard.check(update) for update in updates] if server.guard else []
    messages += [asdict(finding) for of_site in findings for finding in of_site]
    reasons = server.applied.outcome.warnings if server.applied.outcome else []
    messages += [{"site": ", ".join(sites), "message": reason} for sites, reason in reasons]
    for finding in messages:
        log.warning("round %d: site '%s': %s", server.round.number, finding["site"], finding["message"])
    return messages


def extras_record(server: DescribedServer, updates: Sequence[Update], size: int) -> dict[str, Any]:
    """Values beside the model: site -> its numbers, and bytes of all in both directions; {} without any."""
    numbers = {site: plain_metrics(values) for site, values in server.exchange.values.items()}
    for update in updates:
        numbers[update.site] = numbers.get(update.site, {}) | plain_metrics(update.extras)
    known = {site: values for site, values in sorted(numbers.items()) if values}
    return {"extras": known, "bytes_extras": size} if known or size else {}
