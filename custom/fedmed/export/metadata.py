"""``metadata.json`` of an exported bundle: where its weights come from, without a word that names a site."""

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser

from fedmed.errors import ExportError
from fedmed.export.anonymous import anonymous_sites, withheld
from fedmed.export.methods import methods
from fedmed.export.runs import LAST_MODEL, SELECTED, FinishedRun
from fedmed.export.weights import Weights
from fedmed.federation.store import ModelStore

_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")


def check_version(version: str | None, known: Mapping[str, str]) -> None:
    """Refuse a version that is none, or that the base bundle already has."""
    if version is not None and not _VERSION.fullmatch(version):
        raise ExportError(f"--version '{version}' is no version; write it as 1.0.0 or 1.0.0+hospital")
    if version in known:
        raise ExportError(f"--version '{version}' is already in the base bundle's changelog; choose another")


def provenance(run: FinishedRun, store: ModelStore, weights: Weights, which: str, site: str | None) -> dict[str, Any]:
    """How the weights were made.

    Args:
        run: the run.
        store: its model.
        weights: the exported ones.
        which: ``selected`` or ``last``.
        site: whose private tensors they hold, or None.
    """
    best_round = run.result.get("best_round")
    if which == LAST_MODEL and best_round == weights.round:  # the same model, which the sites tested under that name
        which = SELECTED
    plan, model, numbers = run.plan, run.config["model"], anonymous_sites(run, which)
    roles = {role: len(plan.of_role(role)) for role in ("supervised", "unsupervised", "evaluate")}
    best = run.result.get("best_score" if which == SELECTED and best_round is not None else "last_score")
    return {
        "job": withheld(plan.job, plan.sites),
        "started": str(run.facts.get("started", ""))[:10],
        "rounds": plan.rounds,
        "steps": plan.steps,
        "warm_start_rounds": plan.warm_start_rounds,
        "model": LAST_MODEL if best_round is None else which,
        "model_round": weights.round + 1,
        "validation_dice": best,
        "base": {key: model[key] for key in ("bundle", "version", "digest")},
        "overlays": list(store.bundle.overlays),
        "overrides": dict(store.bundle.overrides),
        "methods": methods(run.folder, run.records),
        "seed": store.seed,
        "aggregation": without_names(run.aggregator, plan.sites),
        "number_of_sites": roles,
        "sites": [row for _, row in numbers],
        "private_tensors_of": next((row["site"] for name, row in numbers if name == site), None),
        "training_cases": _cases(run),
        **_incidents(run),
        "protection": _protection(run),
        "software": dict(run.facts.get("versions") or {}),
        "commit": run.facts.get("commit"),
        "hardware": _hardware(run.facts.get("hardware") or {}),
    }


def without_names(settings: Mapping[str, Any], sites: Mapping[str, str]) -> dict[str, Any]:
    """Settings that are not given by site; weights stand with the anonymous sites."""
    by_site = {key for key, value in settings.items() if isinstance(value, Mapping) and set(value) & set(sites)}
    by_site -= {"sharing", "warm_start_sharing"}  # by role, and a site may be called like one
    return {key: value for key, value in settings.items() if key not in by_site | {"user_weights"}}


def _cases(run: FinishedRun) -> dict[str, int]:
    """Training cases of all sites of a role together."""
    most: dict[str, int] = {}
    for line in run.rounds:
        for site, numbers in (line.get("sites") or {}).items():
            most[site] = max(most.get(site, 0), int(numbers.get("n_samples") or 0))
    plan = run.plan
    return {role: sum(most.get(s, 0) for s in plan.of_role(role)) for role in ("supervised", "unsupervised")}


def _protection(run: FinishedRun) -> dict[str, Any]:
    """How many sites clipped and noised their updates, as far as they let it be known, and the largest ε told."""
    last: dict[str, Mapping[str, Any]] = {}
    for line in run.rounds:
        last |= {site: told for site, told in (line.get("sites") or {}).items() if told.get("clip_norm")}
    spent = [told for told in last.values() if told.get("epsilon") is not None]
    most = max(spent, key=lambda told: told["epsilon"], default={})
    noised = sum(bool(told.get("noise_multiplier")) for told in last.values())
    facts = {"sites_that_clip": len(last), "sites_with_noise": noised}
    return {**facts, "largest_epsilon": most.get("epsilon"), "delta": most.get("delta")}


def _incidents(run: FinishedRun) -> dict[str, int]:
    return {
        "guard_warnings": sum(len(line.get("warnings") or ()) for line in run.rounds),
        "refused_updates": sum(len(line.get("refused") or ()) for line in run.rounds),
        "failed_rounds": sum(line.get("aggregated") is False for line in run.rounds),
    }


def _hardware(facts: Mapping[str, Any]) -> str:
    if not facts:
        return "unknown"
    gpus = ", ".join(facts.get("gpus") or ()) or "no GPU"
    return f"Server: {facts.get('cpu_cores', '?')} CPU cores ({facts.get('machine', 'unknown')}), {gpus}"


def metadata(
    base: Mapping[str, Any], folder: Path, config: Path, version: str, federation: Mapping[str, Any]
) -> dict[str, Any]:
    """The base bundle's metadata with what the export changes.

    Args:
        base: the base bundle's metadata.
        folder: the exported bundle.
        config: its ``inference`` config.
        version: the new version.
        federation: see :func:`provenance`.
    """
    content = copy.deepcopy(dict(base))
    content["version"] = version
    content["changelog"] = {version: _change(federation)} | {  # the same weights may be exported of two federations
        known: text for known, text in content["changelog"].items() if known != version
    }
    # The base says that it has no weights; this bundle has.
    content["description"] = re.sub(r"\s*[^.]*\bwithout weights\b[^.]*\.", "", content["description"])
    scores = [row["test_dice"] for row in federation["sites"] if row.get("test_dice") is not None]
    content["eval_metrics"] = {"mean_test_dice_of_sites": sum(scores) / len(scores)} if scores else {}
    _fit_shapes(content, folder, config)
    return {**content, "federation": dict(federation)}


def _change(federation: Mapping[str, Any]) -> str:
    n = sum(federation["number_of_sites"].values())
    score = federation["validation_dice"]
    said = f", mean validation Dice {score:.3f}" if score is not None else ""
    baked = f"; overlays baked in: {', '.join(federation['overlays'])}" if federation["overlays"] else ""
    done = federation["model_round"]
    when = f"after round {done} of {federation['rounds']}" if done else "the starting model"
    return f"weights of the federated job {federation['job']}, {n} sites, {when}{said}{baked}"


def _fit_shapes(content: dict[str, Any], folder: Path, config: Path) -> None:
    """The network's input is one window; a bundle says how large in its inferer."""
    parser = ConfigParser()
    parser.read_config(str(config))
    parser["bundle_root"] = str(folder)
    roi = getattr(parser.get_parsed_content("inferer"), "roi_size", None)
    inputs = content["network_data_format"]["inputs"]["image"]
    before = list(inputs["spatial_shape"])
    if not isinstance(roi, (list, tuple)) or len(roi) != len(before) or not all(size > 0 for size in roi):
        return
    for side in content["network_data_format"].values():
        for tensor in side.values():
            if list(tensor["spatial_shape"]) == before:
                tensor["spatial_shape"] = [int(size) for size in roi]
