"""Origin of an exported bundle's weights, without a word that names a site."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedmed.bundles.score import Score
from fedmed.data.augment.intensities import REFERENCES
from fedmed.errors import FedMedError
from fedmed.export.exporter import Exporter
from fedmed.export.finished_run import LAST_MODEL, SELECTED, FinishedRun
from fedmed.export.weights import KeptMean, Weights
from fedmed.jobs.job import STUDY
from fedmed.jobs.job_folder import read_app
from fedmed.methods.declarations import ROLES, TRAINING_ROLES, USED_LABELS
from fedmed.methods.method import ALL_SITES, MEAN
from fedmed.recovery.model_store import ModelStore
from fedmed.settings.server import load_server

SCORES = {SELECTED: ("validation", "test"), "last": ("validation_last", "test_last")}


def provenance(
    run: FinishedRun, store: ModelStore, exporter: Exporter, weights: Weights, which: str, site: str | None
) -> dict[str, Any]:
    """Tell how the ``selected`` or ``last`` weights were made; ``site``: owner of their private tensors, if anybody."""
    best_round, mean_of = run.result.get("best_round"), run.result.get("mean_of")
    last_is_selected = best_round == weights.round and not mean_of  # then sites tested it under that name
    if which == LAST_MODEL and last_is_selected:
        which = SELECTED
    score, bundle, study, model = run.score, store.bundle, run.study, run.config["model"]
    numbers = anonymous_sites(run, which, exporter.kind.further_scores(score))
    best = run.result.get("best_score" if which == SELECTED and best_round is not None else "last_score")
    temperature = weights.tensors.get(bundle.calibration or "")  # 1 where nobody fitted it
    return {
        "job": withheld(study.name, study.sites),
        "started": str(run.facts.get("started", ""))[:10],
        "rounds": study.rounds,
        "rounds_done": len({line["round"] for line in run.rounds}),
        **({"steps": study.steps} if study.epochs is None else {"epochs": study.epochs}),
        "warm_start_rounds": study.warm_start.rounds,
        "model": LAST_MODEL if best_round is None else which,
        "model_round": weights.round + 1,
        **({"mean_of": [round + 1 for round in mean_of]} if mean_of and which == SELECTED else {}),
        "score": score.facts(),
        f"validation_{score.name}": best,
        **({} if temperature is None else {"temperature": float(temperature.flatten()[0])}),
        **exporter.facts(run),
        **_exchange(run),
        **({REFERENCES: references} if (references := run.result.get(REFERENCES)) else {}),
        "base": {key: model[key] for key in ("bundle", "version", "digest")},
        "overlays": list(bundle.overlays),
        "overrides": dict(bundle.overrides),
        "methods": _roles(run),
        "seed": store.seed,
        "aggregation": _aggregation(run),
        "number_of_sites": {role: len(study.of_role(role)) for role in ROLES},
        "learned_from_some_labels": sum(_used_labels(run, site) for site in study.of_role("unsupervised")),
        "sites": [row for _, row in numbers],
        "private_tensors_of": next((row["site"] for name, row in numbers if name == site), None),
        **_mean(weights.mean, {name: row["site"] for name, row in numbers}),
        "training_cases": _cases(run),
        "guard_warnings": sum(len(line.get("warnings") or ()) for line in run.rounds),
        "refused_updates": sum(len(line.get("refused") or ()) for line in run.rounds),
        "failed_rounds": sum(line.get("aggregated") is False for line in run.rounds),
        "protection": _protection(run),
        "software": dict(run.facts.get("versions") or {}),
        "commit": run.facts.get("commit"),
        "hardware": _hardware(run.facts.get("hardware") or {}),
    }


def _mean(mean: KeptMean | None, numbers: Mapping[str, str]) -> dict[str, Any]:
    """Shares of the sites in the private tensors of a model for an unseen site; {} of another model."""
    if mean is None:
        return {}
    shares = sorted((numbers.get(name, "another site"), share) for name, share in mean.weights.items())
    return {"private_tensors_mean": {"weighting": mean.weighting, "weights": dict(shares)}}


def _exchange(run: FinishedRun) -> dict[str, Any]:
    """Values that the sites sent one another, and in which rounds, by the server's records: a study that asks
    for an exchange does not say that there was one. {} where it asks for none.
    """
    exchange = run.job.exchange
    if not (names := list(exchange.names)):
        return {}
    rounds = [line["round"] + 1 for line in run.rounds if _exchanged(line, set(names))]
    return {"exchange": {"names": names, "once": exchange.once, "rounds": rounds}}


def _exchanged(line: Mapping[str, Any], names: set[str]) -> bool:
    return bool(line.get("bytes_told")) or any(names & set(sent) for sent in (line.get("extras") or {}).values())


def _used_labels(run: FinishedRun, site: str) -> bool:
    return any(USED_LABELS in (line.get("sites") or {}).get(site, {}) for line in run.rounds)


def _roles(run: FinishedRun) -> dict[str, dict[str, Any]]:
    """Role -> overlays and overrides of its sites, from the job's own files; empty where none lies beside the run."""
    places = [run.folder.glob(f"*/simulate_job/app_*/config/{STUDY}")]
    for folder in (run.records.parent.parent, run.folder):  # of a downloaded result
        places.append((folder / "job").glob(f"**/app_*/config/{STUDY}"))
    for path in (path for paths in places for path in sorted(paths)):
        try:
            job = read_app(path.parents[1], load_server().allowed_classes)
        except FedMedError:  # a file that cannot be read tells nothing, and the export does not depend on it
            continue
        roles = sorted(set(job.study.sites.values()))
        return {role: {"overlays": job.overlays(role), "overrides": job.overrides(role)} for role in roles}
    return {}


def _aggregation(run: FinishedRun) -> dict[str, Any]:
    """Settings by which the server aggregated the updates, and what each role shared."""
    job, study = run.job, run.study
    groups: dict[str, str] = {role: job.group(role) for role in sorted(set(study.sites.values()))}
    sends = {role: made.sends for role, made in job.method.roles().items() if made.sends}
    said: dict[str, Any] = {"sharing": groups if len(set(groups.values())) > 1 else groups[job.model_role]}
    said |= {"buffers": study.buffers, **({"sends": sends} if sends else {})}
    said |= {"warm_start_sharing": study.warm_start.sharing} if study.warm_start.sharing else {}
    said |= study.model_dump(exclude_defaults=True, include={"normalise", "user_weights", "max_norm", "clip_norm"})
    said |= {} if study.server_step is None else {"step": study.server_step}
    rule = job.short_rule
    return without_names(said | (rule["args"] if rule["path"] == MEAN else {"rule": rule}), study.sites)


def without_names(settings: Mapping[str, Any], sites: Mapping[str, str]) -> dict[str, Any]:
    """Settings that are not given by site, also within a rule's arguments; weights stand with the anonymous sites."""
    by_site = {key for key, value in settings.items() if isinstance(value, Mapping) and set(value) & set(sites)}
    by_site -= {"sharing", "warm_start_sharing", "buffers"}  # by role, and a site may be called like one
    kept = {key: value for key, value in settings.items() if key not in by_site | {"user_weights"}}
    nested = [key for key in ("rule", "args", "weighting") if isinstance(kept.get(key), Mapping)]
    return kept | {key: without_names(kept[key], sites) for key in nested}


def _cases(run: FinishedRun) -> dict[str, int]:
    """Training cases of all sites of a role together."""
    most: dict[str, int] = {}
    for line in run.rounds:
        for site, numbers in (line.get("sites") or {}).items():
            most[site] = max(most.get(site, 0), int(numbers.get("n_samples") or 0))
    return {role: sum(most.get(s, 0) for s in run.study.of_role(role)) for role in TRAINING_ROLES}


def _protection(run: FinishedRun) -> dict[str, Any]:
    """Count the sites that clipped and noised their updates, as far as they let it be known, and the largest ε."""
    last: dict[str, Mapping[str, Any]] = {}
    for line in run.rounds:
        last |= {site: sent for site, sent in (line.get("sites") or {}).items() if sent.get("clip_norm")}
    spent = [sent for sent in last.values() if sent.get("epsilon") is not None]
    most: Mapping[str, Any] = max(spent, key=lambda sent: sent["epsilon"], default={})
    noised = sum(bool(sent.get("noise_multiplier")) for sent in last.values())
    facts = {"sites_that_clip": len(last), "sites_with_noise": noised}
    return {**facts, "largest_epsilon": most.get("epsilon"), "delta": most.get("delta")}


def _hardware(facts: Mapping[str, Any]) -> str:
    if not facts:
        return "unknown"
    gpus = ", ".join(facts.get("gpus") or ()) or "no GPU"
    return f"Server: {facts.get('cpu_cores', '?')} CPU cores ({facts.get('machine', 'unknown')}), {gpus}"


def anonymous_sites(run: FinishedRun, which: str, others: Sequence[Score] = ()) -> list[tuple[str, dict[str, Any]]]:
    """Return (name, row) of every site: role, weight and scores of the model under a number.

    Scores are called as :func:`score_keys` says. Numbers follow the scores within each role and nothing else, so that
    no name can be guessed from them.

    Args:
        which: model, ``selected`` or ``last``.
        others: further scores of the testing lists.
    """
    names = score_keys(run.score, others)
    rows = [(name, _row(run, which, name, facts, names)) for name, facts in run.facts["sites"].items()]
    keys = [key for key in names.values() if not key.endswith(("_low", "_high"))]
    rows.sort(key=lambda item: _order(item[1], keys))
    numbers = {name: f"site {place}" for place, (name, _) in enumerate(rows, 1)}
    for _, row in rows:
        if owner := row.pop("decoder_of"):
            row["decoder_of"] = owner if owner == ALL_SITES else numbers.get(owner, "another site")
    return [(name, {"site": numbers[name], **row}) for name, row in rows]


def score_keys(score: Score, others: Sequence[Score] = ()) -> dict[str, str]:
    """Metric of the run -> its name in a site's row: ``test_dice``, ``validation_dice``, ``test_dice_std``."""
    also = [metric for other in others for metric in other.tested]
    rest = [metric for metric in score.tested if metric != score.test]
    named = {score.test: f"test_{score.name}", score.validation: f"validation_{score.name}"}
    return named | {metric: f"test_{metric}" for metric in [*rest, *also]}


def _row(run: FinishedRun, which: str, name: str, facts: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    validation, test = (run.result.get(key) or {} for key in SCORES[which])
    tested, score = test.get(name) or {}, run.score
    sent = {**tested, score.validation: validation.get(name)}
    return {
        "role": facts["role"],
        "weight": facts.get("weight", 1.0),
        **_part(run, name, facts),
        **{key: sent.get(metric) for metric, key in names.items()},
        "test_cases": int(tested.get("n_cases") or 0),
        "decoder_of": tested.get("decoder_of"),
    }


def _part(run: FinishedRun, name: str, facts: Mapping[str, Any]) -> dict[str, int]:
    """In how many of its rounds the site contributed to the model."""
    if facts["role"] not in TRAINING_ROLES:
        return {}
    contributed, rounds = run.contributed(name)
    return {"contributed": contributed, "of_rounds": rounds}


def _order(row: Mapping[str, Any], keys: Collection[str]) -> tuple[Any, ...]:
    role = ROLES.index(row["role"]) if row["role"] in ROLES else len(ROLES)
    scores = [-1.0 if row[key] is None else row[key] for key in keys]
    return (role, *(-score for score in scores), -row["test_cases"], -row["weight"], row["decoder_of"] is not None)


def withheld(text: str, names: Collection[str]) -> str:
    """The text, unless it holds a site's name, however it is spelled: a job may be called after a hospital."""

    def plain(text: str) -> str:  # letters and digits alone: hospital-a is Hospital_A
        return "".join(filter(str.isalnum, text.casefold())) or text

    return "(withheld)" if any(plain(name) in plain(text) for name in names) else text
