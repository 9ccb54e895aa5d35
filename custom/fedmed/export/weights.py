"""The weights of an exported bundle: those that all share, with a site's own layers or the mean of all sites'."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.sharing import Patterns
from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import initial_network, unknown
from fedmed.class_paths import load_class
from fedmed.durable_files import load_tensors
from fedmed.errors import ExportError, FedMedError, StateError
from fedmed.export.exporter import Exporter
from fedmed.export.finished_run import FinishedRun
from fedmed.jobs.job import RolePolicies
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.methods.method import Method
from fedmed.recovery.model_store import MEAN_OF_PRIVATE, ModelStore
from fedmed.recovery.site_state import SiteState
from fedmed.reports.run_files import read_lines
from fedmed.settings.server import load_server
from fedmed.training.corrections.correction import Correction

# A run folder, a site's simulator folder, the folder of the state itself.
PLACES = ("fedmed", "simulate_job/fedmed", ".")


@dataclass(frozen=True)
class KeptMean:
    """Mean of the sites' private layers that the server of a run has kept.

    Attributes:
        tensors: name -> mean over the sites.
        weighting: ``samples`` or ``uniform``.
        weights: site -> its share.
    """

    tensors: Mapping[str, Tensor]
    weighting: str
    weights: Mapping[str, float]


def kept_mean(run: FinishedRun, policies: RolePolicies, names: Collection[str], site: str, round: int) -> KeptMean:
    """Return the mean of the sites' private layers that belong to the model after ``round``.

    Args:
        run, policies, names: the run, what each role keeps to itself, and the network's tensors.
        site: that never trained; it need not be one of the run's.
        round: the model's.

    Raises:
        ExportError: the site trained in the run, the model has no private layers, or no mean of them was kept, and
            why; or the file is damaged, or of another model.
    """
    if site in run.study.of_role(*TRAINING_ROLES):
        raise ExportError(f"site '{site}' trained in this run and has layers of its own; export those: --site {site}")
    expected = policies.of("supervised", round).private(names)
    if not expected:
        raise ExportError(f"the model after round {round} is complete: no tensor is a site's own; leave out --unseen")
    entries = [entry for entry in run.result.get("releases") or [] if entry.get("kept") is True]
    path = next(iter(sorted(run.records.parent.glob(f"app_*/{MEAN_OF_PRIVATE.format(round=round)}"))), None)
    if path is None or not entries:  # a file alone may be of an earlier run in the same folder
        raise ExportError(f"the run kept no mean of the sites' private layers after round {round}: {_why(run)}")
    try:
        content = load_tensors(path)
    except StateError as error:
        raise ExportError(str(error)) from error
    tensors, meta = content.get("tensors"), content.get("meta")
    if not isinstance(tensors, Mapping) or not isinstance(meta, Mapping) or not meta.get("weights"):
        raise ExportError(f"{path} is damaged: it does not hold a mean and its weights; copy the run again")
    listed = any(entry.get("weights") == meta["weights"] for entry in entries)
    if meta.get("round") != round or set(tensors) != set(expected) or not listed:
        raise ExportError(f"{path} is not of the model after round {round}; the folder mixes two runs: copy it again")
    return KeptMean(dict(tensors), str(meta.get("weighting")), dict(meta["weights"]))


def _why(run: FinishedRun) -> str:
    if not run.study.release_keep:
        return (
            "its study must say 'release_from: all' and 'release_keep: true', and each site 'allow_release: true' and "
            "'allow_kept_release: true'"
        )
    entries: list[Mapping[str, Any]] = [entry for entry in run.result.get("releases") or [] if entry.get("asked")]
    reasons = [entry.get("not_kept") or entry.get("reason") for entry in entries]
    return next((str(reason) for reason in reasons if reason), "copy the run's folder completely")


@dataclass(frozen=True)
class Weights:
    """A model to export.

    Attributes:
        tensors: the network's state dict.
        round: the round after which it was aggregated; -1: the starting model.
        settings: of ``inference``, with which the site sees images whose model it is.
        mean: whose private tensors it holds the mean of, for a site that never trained; None: of nobody.
    """

    tensors: dict[str, Tensor]
    round: int
    settings: dict[str, Any] = field(default_factory=dict)
    mean: KeptMean | None = None


def open_store(run: FinishedRun) -> ModelStore:
    """The run's network from the installed bundle, which must be the very one.

    The files from which the run began are not needed: its models hold all weights.

    Raises:
        ExportError: the bundle is not installed, or is another version.
    """
    version, digest = (run.config["model"][key] for key in ("version", "digest"))
    try:
        store = ModelStore(run.job, run.records)
    except FedMedError as error:
        raise ExportError(f"the run's bundle cannot be opened: {error}") from error
    here = store.bundle
    if here.digest != digest:
        commit = f", commit {run.facts['commit']}" if run.facts.get("commit") else ""
        raise ExportError(
            f"bundle '{here.name}' at {here.root} (version {here.version}, hash {here.digest[:12]}) is not the one of "
            f"the run (version {version}, hash {digest[:12]}{commit}); install that one, for example in "
            "$FEDMED_HOME/bundles"
        )
    return store


def complete_weights(
    run: FinishedRun,
    store: ModelStore,
    exporter: Exporter,
    which: str,
    site: str | None = None,
    site_run: Path | None = None,
    unseen: str | None = None,
) -> Weights:
    """Put a run's model together; of a pre-training whose other layers are the sites' own, the encoder alone.

    Args:
        run, store, exporter: the run, its network from :func:`open_store`, and what its kind exports.
        which: ``selected`` or ``last``.
        site: whose private tensors and settings are merged; needed when not all tensors were shared.
        site_run: that site's own run folder; None = below the simulator's workspace.
        unseen: a site that never trained, for which the mean of what all sites released is merged.

    Raises:
        ExportError: private tensors without a site, a site that has none or not those of this model, a tensor that
            is missing, unknown, of another shape or type, NaN or infinite; names it.
    """
    round, shared = run.model(which)
    policies = RolePolicies(run.job, store.initial, store.groups)
    if site is not None and unseen is not None:
        raise ExportError("--site and --unseen are for two models: a site's own, and that of one that never trained")
    own_images = exporter.method.own_images
    if own_images and site is None:
        raise ExportError(
            "each site of this run shows the model its images changed in a way of its own, and whose images the "
            "exported bundle will see is not said; name a site that trained with --site NAME"
        )
    if unseen is not None:
        mean = kept_mean(run, policies, list(store.initial), unseen, round)
        what = "the run's model with the mean of the sites' private layers"
        return Weights(fitted({**shared, **mean.tensors}, store.initial, what), round, mean=mean)
    if site is not None:
        names, roles = list(store.initial), {"supervised", run.study.sites.get(site, "supervised")}
        partly = [name for role in sorted(roles) for name in policies.of(role, round).private(names)]
        private = private_state(run, policies, names, site, site_run, round) if partly else {}
        settings = site_settings(run, site, site_run, round)
        if lost := unknown(store.bundle.config_file("inference"), settings):
            raise ExportError(
                f"'{site}' saw its images changed, and inference of {store.bundle.name} does not have '{lost[0]}', "
                "with which it would change them too; the model would not be what was scored, and is not exported"
            )
        if not partly and not settings and not own_images:
            raise ExportError(
                f"the model after round {round} is complete: no tensor and no setting is a site's own; leave out --site"
            )
        what = f"the run's model with the layers of '{site}'"
        return Weights(fitted({**shared, **private}, store.initial, what), round, settings)
    frozen = Patterns(store.groups.get(exporter.method.frozen or "", [])).select(store.initial)
    held = [name for name in policies.of("supervised", round).private(store.initial) if name not in frozen]
    if not exporter.complete_without(held):
        raise ExportError(
            f"the model after round {round} looks complete and is not: {len(held)} of its {len(store.initial)} "
            f"tensors (such as '{held[0]}') are the sites' own, and the server's file has old values there. "
            "Export at a site that has trained them, with --site NAME; or, if the run kept their mean, for a site that "
            "never trained, with --unseen NAME"
        )
    whole = fitted(shared, store.initial, "the run's model")
    if exporter.method.summed:
        network: Any = initial_network(store.bundle.parser_without_site(device="cpu"), store.seed)
        network.load_state_dict(whole)
        return Weights({name: tensor.clone() for name, tensor in network.summed().items()}, round)
    prefix = exporter.part.prefix if held else ""  # what the sites hold back has old values in the server's file
    return Weights({name: tensor for name, tensor in whole.items() if name.startswith(prefix)}, round)


def without_parts(bundle: Bundle, method: Method) -> Bundle:
    """The run's bundle, without the overlay in which a network's weights are the sum of parts."""
    if method.summed is None:
        return bundle
    return Bundle(bundle.name, [name for name in bundle.overlays if name != method.summed], bundle.overrides)


def fitted(given: Mapping[str, Tensor], network: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """Return ``given`` in the network's order and types.

    Raises:
        ExportError: a tensor is missing, unknown, of another shape, changed by the cast, NaN or infinite.
    """
    hint = "; is the bundle the run's?"
    for name in given:
        if name not in network:
            raise ExportError(f"{what}: tensor '{name}' is unknown to the bundle's network{hint}")
    for name, tensor in network.items():
        if name not in given:
            raise ExportError(f"{what}: tensor '{name}' is missing{hint}")
        if given[name].shape != tensor.shape:
            shapes = f"{tuple(given[name].shape)}, the network's is {tuple(tensor.shape)}"
            raise ExportError(f"{what}: tensor '{name}' has the shape {shapes}{hint}")
    return {name: _cast(given[name], tensor, f"{what}: tensor '{name}'") for name, tensor in network.items()}


def _cast(value: Tensor, like: Tensor, what: str) -> Tensor:
    if not all_finite(value):
        raise ExportError(f"{what} has values that are NaN or infinite; the training broke down")
    cast = value.detach().cpu().to(like.dtype)
    if not like.is_floating_point() and not torch.equal(cast.to(value.dtype), value):
        raise ExportError(f"{what} must be {like.dtype}, but holds {value.flatten()[0].item()}")
    if not all_finite(cast):  # a float64 that float32 cannot hold
        raise ExportError(f"{what} does not fit into {like.dtype}; the training broke down")
    return cast.contiguous().clone()


def private_state(
    run: FinishedRun, policies: RolePolicies, names: list[str], site: str, site_run: Path | None, round: int
) -> dict[str, Tensor]:
    """Return the private tensors with which ``site`` was scored under the model after ``round``.

    Args:
        run, policies, names: the run, what each role keeps to itself, and the network's tensors.
        site, site_run: whose tensors are wanted, and its run folder; None = below the simulator's workspace.
        round: the model's.

    Raises:
        ExportError: an unknown site, one that keeps nothing or has trained nothing, a folder of another site or run,
            or a state file that is missing, damaged or incomplete.
    """
    expected = _expected(run, policies, names, site, round)
    trained, folder, state = _state(run, site, site_run, round)
    private = state.get("private", {})
    if missing := [name for name in expected if name not in private]:
        raise ExportError(
            f"the state of site '{site}' of round {trained} in {folder} lacks tensor '{missing[0]}': the site has not "
            "trained its own layers for this model"
        )
    return {name: private[name] for name in expected}


def site_settings(run: FinishedRun, site: str, site_run: Path | None, round: int) -> dict[str, Any]:
    """Return with which settings of ``inference`` a site sees images as it did under the model after ``round``.

    Raises:
        ExportError: an unknown site, or as :func:`private_state`.
    """
    check_site(run, site)
    kept = _state(run, site, site_run, round)[2].get("engine", {}).get("corrections", ())
    settings: dict[str, Any] = {}
    rooms, allowed = ("fedmed.training", "fedmed.systems"), load_server().allowed_classes
    for entry in kept:
        kind: type[Correction] = load_class(entry["path"], rooms, allowed)
        settings |= kind.inference_settings(entry["state"])
    return settings


def _state(run: FinishedRun, site: str, site_run: Path | None, round: int) -> tuple[int, Path, dict[str, Any]]:
    """The round in which the site trained last before a model, its folder, and what it kept of that round."""
    trained = run.accepted(site, round)
    if trained is None:
        raise ExportError(f"site '{site}' has contributed to no round up to {round}; it has no layers for this model")
    root = Path(site_run).expanduser().absolute() if site_run else run.folder / site
    folder = next((root / place for place in PLACES if (root / place / "state").is_dir()), None)
    if folder is None:
        raise ExportError(
            f"the private state of site '{site}' is not in {root} (looked for fedmed/state); give the site's own run "
            "folder with --site-run"
        )
    _check_owner(run, folder, site)
    state = SiteState(folder)
    state.earlier = run.facts.get("resumed") or {}
    try:
        return trained, folder, state.load(trained)
    except StateError as error:
        raise ExportError(str(error)) from error


def check_site(run: FinishedRun, site: str) -> None:
    """Refuse a name that is not of a site of the run; ExportError: names the run's sites."""
    if site not in run.study.sites:
        raise ExportError(f"the run has no site '{site}'; its sites are {', '.join(run.study.sites)}")


def _expected(run: FinishedRun, policies: RolePolicies, names: list[str], site: str, round: int) -> list[str]:
    """Names that the site keeps to itself in the model's round."""
    sites = run.study.sites
    check_site(run, site)
    if not policies.scorable(sites[site], round):
        able = [other for other, role in sites.items() if policies.scorable(role, round)]
        raise ExportError(
            f"site '{site}' ({sites[site]}) has never trained its own layers against labels, so they make no model; "
            f"export at {' or '.join(able)}"
        )
    return policies.of(sites[site], round).private(names)


def _check_owner(run: FinishedRun, folder: Path, site: str) -> None:
    """The site noted each validation score as the server did; another site's or run's folder has other numbers."""
    metric, label = run.score.validation, run.score.label
    sent = {line["round"]: line.get("sites", {}).get(site, {}).get(metric) for line in run.rounds}
    for line in read_lines(folder / "progress.jsonl"):
        ours = sent.get(line.get("round")) if line.get("event") == "validated" and line.get("task") == "train" else None
        noted = line.get("score", line.get("dice", math.nan))  # runs of FedMed 0.1 noted Dice under its name
        if ours is not None and not math.isclose(ours, noted, rel_tol=1e-5):
            raise ExportError(
                f"{folder} is not of site '{site}' in this run: its validation {label} of round {line['round']} is "
                f"{noted}, the server was told {ours}; give the right --site-run"
            )
