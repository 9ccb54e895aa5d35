"""Where an exported bundle's weights come from, without a word that names a site."""

from collections.abc import Mapping
from typing import Any

from fedmed.bundles.load import Bundle
from fedmed.export.anonymous import anonymous_sites, withheld
from fedmed.export.exporter import exporter_of
from fedmed.export.finished_run import LAST_MODEL, SELECTED, FinishedRun
from fedmed.export.methods import methods
from fedmed.export.weights import Weights
from fedmed.recovery.model_store import ModelStore


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
    score, bundle, exporter = run.score, store.bundle, exporter_of(store.bundle)
    beside = exporter.kind.beside(score)
    plan, model, numbers = run.plan, run.config["model"], anonymous_sites(run, which, beside)
    roles = {role: len(plan.of_role(role)) for role in ("supervised", "unsupervised", "evaluate")}
    best = run.result.get("best_score" if which == SELECTED and best_round is not None else "last_score")
    return {
        "job": withheld(plan.job, plan.sites),
        "started": str(run.facts.get("started", ""))[:10],
        "rounds": plan.rounds,
        **({"steps": plan.steps} if plan.epochs is None else {"epochs": plan.epochs}),
        "warm_start_rounds": plan.warm_start_rounds,
        "model": LAST_MODEL if best_round is None else which,
        "model_round": weights.round + 1,
        "score": score.facts(),
        f"validation_{score.name}": best,
        **_temperature(bundle, weights),
        **exporter.facts(run),
        **({"exchange": dict(plan.exchange)} if plan.exchange else {}),
        "base": {key: model[key] for key in ("bundle", "version", "digest")},
        "overlays": list(bundle.overlays),
        "overrides": dict(bundle.overrides),
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


def _temperature(bundle: Bundle, weights: Weights) -> dict[str, float]:
    """What the logits are divided by for probabilities, of a bundle that calibrates; 1 where nobody fitted it."""
    tensor = weights.tensors.get(bundle.calibration or "")
    return {} if tensor is None else {"temperature": float(tensor.flatten()[0])}


def without_names(settings: Mapping[str, Any], sites: Mapping[str, str]) -> dict[str, Any]:
    """Settings that are not given by site, also within a rule's arguments; weights stand with the anonymous sites."""
    by_site = {key for key, value in settings.items() if isinstance(value, Mapping) and set(value) & set(sites)}
    by_site -= {"sharing", "warm_start_sharing"}  # by role, and a site may be called like one
    kept = {key: value for key, value in settings.items() if key not in by_site | {"user_weights"}}
    within = {key: without_names(value, sites) for key, value in kept.items() if key in ("rule", "args", "weighting")
              and isinstance(value, Mapping)}  # fmt: skip
    return kept | within


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
