"""From a finished run to a complete MONAI bundle."""

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedmed.bundles.load import Bundle
from fedmed.errors import BundleError, ExportError, FedMedError
from fedmed.export.configs import merged, to_yaml
from fedmed.export.folder import check_target, copy_parts, staged
from fedmed.export.runs import SELECTED, FinishedRun, read_finished
from fedmed.export.weights import Weights, complete_weights
from fedmed.federation.store import ModelStore

RECORDED = ("version", "digest")  # what the run says of its bundle, beside what built it


@dataclass(frozen=True)
class Exported:
    """What was made.

    Attributes:
        out: the bundle's folder.
        version: in its metadata.
        round: the round after which the model was aggregated.
    """

    out: Path
    version: str
    round: int


def export_bundle(
    run: str | Path,
    out: str | Path,
    *,
    model: str = SELECTED,
    site: str | None = None,
    site_run: Path | None = None,
    onnx: bool = False,
    version: str | None = None,
    replace: bool = False,
) -> Exported:
    """Write a complete bundle from a finished run, whole or not at all.

    Args:
        run: simulator workspace, downloaded job result, or server's run folder.
        out: the bundle's own folder; its name says the task (``…_segmentation``).
        model: ``selected`` (best mean validation score) or ``last``.
        site: merge this site's private tensors; needed after partial sharing.
        site_run: that site's run folder, when it is not in the workspace.
        onnx: also write ``models/model.onnx``.
        version: of the bundle; None = the base bundle's and the first letters of the weights' hash.
        replace: replace an exported bundle at ``out``.

    Raises:
        ExportError: the run is not finished, its model is not complete or not finite, the installed bundle is not the
            run's, or ``out`` cannot be written.
    """
    out = Path(out).expanduser().absolute()
    check_target(out, replace)
    finished = read_finished(run)
    store = open_store(finished)
    weights = complete_weights(finished, store, model, site, site_run)
    with staged(out) as folder:
        copy_parts(store.bundle.root, folder)
        state = weights_file(weights)
        (folder / "models").mkdir()
        (folder / "models" / "model.pt").write_bytes(state)
        made = version or default_version(store.bundle, state)
        write_configs(store.bundle, folder, made)
    return Exported(out, made, weights.round)


def open_store(run: FinishedRun) -> ModelStore:
    """The run's network from the installed bundle, which must be the very one.

    Raises:
        ExportError: the bundle is not installed, or is another version.
    """
    model = dict(run.config["model"])
    recorded = {key: model.pop(key) for key in RECORDED}
    try:
        store = ModelStore.from_args(model, run.records)
    except FedMedError as error:
        raise ExportError(f"the run's bundle cannot be opened: {error}") from error
    here = store.bundle
    if here.digest != recorded["digest"]:
        commit = f", commit {run.facts['commit']}" if run.facts.get("commit") else ""
        raise ExportError(
            f"bundle '{here.name}' at {here.root} (version {here.version}, hash {here.digest[:12]}) is not the one of the "
            f"run (version {recorded['version']}, hash {recorded['digest'][:12]}{commit}); install that one, for example "
            "with FEDMED_BUNDLES"
        )
    return store


def weights_file(weights: Weights) -> bytes:
    """The content of ``model.pt``: a bare state dict."""
    stream = io.BytesIO()
    torch.save(weights.tensors, stream)
    return stream.getvalue()


def default_version(bundle: Bundle, state: bytes) -> str:
    """The base version and the first letters of the weights' hash."""
    return f"{bundle.version.partition('+')[0]}+{hashlib.sha256(state).hexdigest()[:8]}"


def write_configs(bundle: Bundle, folder: Path, version: str) -> None:
    for name in ("inference", "train"):
        base = bundle._config_file(name)
        config = merged(base, bundle.files[1:], bundle.overrides)
        (folder / "configs" / f"{name}.yaml").write_text(to_yaml(config, "merged"))
    path = folder / "configs" / "metadata.json"
    metadata: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    metadata["version"], metadata["federation"] = version, {}
    path.write_text(json.dumps(metadata, indent=4))
