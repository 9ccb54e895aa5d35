"""The weights of an exported bundle: complete, finite, and of the network's own names, shapes and types."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.sharing import Patterns
from fedmed.bundles.bundle import Bundle
from fedmed.bundles.merged_configs import unknown
from fedmed.bundles.network import initial_network
from fedmed.errors import ExportError, FedMedError
from fedmed.export.exporter import Exporter
from fedmed.export.finished_run import FinishedRun
from fedmed.export.private_tensors import private_state, site_settings
from fedmed.export.unseen import KeptMean, kept_mean
from fedmed.jobs.role_sharing import RolePolicies
from fedmed.methods.method import Method
from fedmed.recovery.model_store import ModelStore

STARTED_FROM = ("checkpoint", "checkpoint_tensors", "encoder")  # of a run's description


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
    model = {name: value for name, value in run.config["model"].items() if name not in STARTED_FROM}
    version, digest = model.pop("version"), model.pop("digest")
    try:
        store = ModelStore.from_args({**model, "classes": run.facts.get("classes") or ()}, run.records)
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
    policies = RolePolicies(store.initial, store.groups, run.plan, run.aggregator)
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
        names, roles = list(store.initial), {"supervised", run.plan.sites.get(site, "supervised")}
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
        return Weights(_summed(store, whole), round)
    prefix = exporter.part.prefix if held else ""  # what the sites hold back has old values in the server's file
    return Weights({name: tensor for name, tensor in whole.items() if name.startswith(prefix)}, round)


def without_parts(bundle: Bundle, method: Method) -> Bundle:
    """The run's bundle, without the overlay in which a network's weights are the sum of parts."""
    if method.summed is None:
        return bundle
    return Bundle(bundle.name, [name for name in bundle.overlays if name != method.summed], bundle.overrides)


def _summed(store: ModelStore, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    network: Any = initial_network(store.bundle.parser_without_site(device="cpu"), store.seed)
    network.load_state_dict(tensors)
    return {name: tensor.clone() for name, tensor in network.summed().items()}


def fitted(given: Mapping[str, Tensor], network: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """Return ``given`` in the network's order and types.

    Raises:
        ExportError: a tensor is missing, unknown, of another shape, changed by the cast, NaN or infinite.
    """
    asked = "; is the bundle the run's?"
    for name in given:
        if name not in network:
            raise ExportError(f"{what}: tensor '{name}' is unknown to the bundle's network{asked}")
    for name, own in network.items():
        if name not in given:
            raise ExportError(f"{what}: tensor '{name}' is missing{asked}")
        if given[name].shape != own.shape:
            shapes = f"{tuple(given[name].shape)}, the network's is {tuple(own.shape)}"
            raise ExportError(f"{what}: tensor '{name}' has the shape {shapes}{asked}")
    return {name: _cast(given[name], own, f"{what}: tensor '{name}'") for name, own in network.items()}


def _cast(value: Tensor, own: Tensor, what: str) -> Tensor:
    if not all_finite(value):
        raise ExportError(f"{what} has values that are NaN or infinite; the training broke down")
    cast = value.detach().cpu().to(own.dtype)
    if not own.is_floating_point() and not torch.equal(cast.to(value.dtype), value):
        raise ExportError(f"{what} must be {own.dtype}, but holds {value.flatten()[0].item()}")
    if not all_finite(cast):  # a float64 that float32 cannot hold
        raise ExportError(f"{what} does not fit into {own.dtype}; the training broke down")
    return cast.contiguous().clone()
