"""The weights of an exported bundle: complete, finite, and of the network's own names, shapes and types."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.errors import ExportError
from fedmed.export.exporter import exporter_of
from fedmed.export.finished_run import FinishedRun
from fedmed.export.private_tensors import private_state
from fedmed.jobs.role_sharing import RolePolicies
from fedmed.recovery.model_store import ModelStore


@dataclass(frozen=True)
class Weights:
    """A model to export.

    Attributes:
        tensors: the network's state dict.
        round: the round after which it was aggregated; -1: the starting model.
        private: names that came from a site's own state.
    """

    tensors: dict[str, Tensor]
    round: int
    private: tuple[str, ...] = ()


def complete_weights(
    run: FinishedRun, store: ModelStore, which: str, site: str | None = None, site_run: Path | None = None
) -> Weights:
    """Put a run's model together; of a pre-training whose other layers are the sites' own, the encoder alone.

    Args:
        run: the run.
        store: the run's network, from the installed bundle.
        which: ``selected`` or ``last``.
        site: whose private tensors are merged; needed when not all tensors were shared.
        site_run: that site's own run folder; None = below the simulator's workspace.

    Raises:
        ExportError: private tensors without a site, a site that has none or not those of this model, a tensor that
            is missing, unknown, of another shape or type, NaN or infinite; names it.
    """
    round, shared = run.model(which)
    policies = RolePolicies(store.initial, store.groups, run.plan, run.aggregator)
    held = policies.of("supervised", round).private(store.initial)
    exporter = exporter_of(store.bundle)
    if site is None:
        if not exporter.complete_without(held):
            raise ExportError(
                f"the model after round {round} looks complete and is not: {len(held)} of its {len(store.initial)} "
                f"tensors (such as '{held[0]}') are the sites' own, and the server's file has old values there. "
                "Export at a site that has trained them, with --site NAME"
            )
        whole = fitted(shared, store.initial, "the run's model")
        kept = exporter.part.prefix if held else ""  # what the sites hold back has old values in the server's file
        return Weights({name: tensor for name, tensor in whole.items() if name.startswith(kept)}, round)
    private = private_state(run, policies, list(store.initial), site, site_run, round)
    merged = fitted({**shared, **private}, store.initial, f"the run's model with the layers of '{site}'")
    return Weights(merged, round, tuple(private))


def fitted(given: Mapping[str, Tensor], network: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """Return ``given`` in the network's order and types.

    Raises:
        ExportError: a tensor is missing, unknown, of another shape, changed by the cast, NaN or infinite.
    """
    for name in given:
        if name not in network:
            raise ExportError(f"{what}: tensor '{name}' is unknown to the bundle's network; is the bundle the run's?")
    return {name: _fit(name, given.get(name), own, what) for name, own in network.items()}


def _fit(name: str, value: Tensor | None, own: Tensor, what: str) -> Tensor:
    if value is None:
        raise ExportError(f"{what}: tensor '{name}' is missing; is the bundle the run's?")
    if value.shape != own.shape:
        shapes = f"{tuple(value.shape)}, the network's is {tuple(own.shape)}"
        raise ExportError(f"{what}: tensor '{name}' has the shape {shapes}; is the bundle the run's?")
    if not all_finite(value):
        raise ExportError(f"{what}: tensor '{name}' has values that are NaN or infinite; the training broke down")
    cast = value.detach().cpu().to(own.dtype)
    if not own.is_floating_point() and not torch.equal(cast.to(value.dtype), value):
        raise ExportError(f"{what}: tensor '{name}' must be {own.dtype}, but holds {value.flatten()[0].item()}")
    if not all_finite(cast):  # a float64 that float32 cannot hold
        raise ExportError(f"{what}: tensor '{name}' does not fit into {own.dtype}; the training broke down")
    return cast.contiguous().clone()
