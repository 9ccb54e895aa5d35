"""From a finished run to a complete MONAI bundle."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedmed.bundles.digests import write_digests
from fedmed.bundles.signature import read_key, sign
from fedmed.data.structure import Structure
from fedmed.export.card import card
from fedmed.export.configs import write_configs
from fedmed.export.exporter import Exporter, exporter_of
from fedmed.export.finished_run import SELECTED, read_finished
from fedmed.export.folder import CONFIGS, DOCS, METADATA, MODELS, check_apart, check_target, copy_parts, staged
from fedmed.export.formats import open_network, write_onnx, write_torchscript
from fedmed.export.metadata import check_version, metadata
from fedmed.export.site_facts import facts_to_set, site_facts
from fedmed.export.verify import check_image
from fedmed.export.verify import verify as verify_bundle
from fedmed.export.weights import Weights, complete_weights, open_store, without_parts
from fedmed.export.weights_origin import provenance

BASE_NOTE = "> The bundle that this one was made from. Weights, settings and overlays have changed: see "
BASE_NOTE += "[README.md](README.md).\n\n"


@dataclass(frozen=True)
class Exported:
    """What was made.

    Attributes:
        out: the bundle's folder.
        version: in its metadata.
        round: the round after which the model was aggregated, from 0; -1: the starting model.
        overlays: the overlays that are left in it.
        checks: what was checked, in words.
        next_steps: what one does with it, as lines for a terminal.
    """

    out: Path
    version: str
    round: int
    overlays: list[str]
    checks: list[str]
    next_steps: list[str]


def export_bundle(
    run: str | Path,
    out: str | Path,
    *,
    model: str = SELECTED,
    site: str | None = None,
    site_run: Path | None = None,
    unseen: str | None = None,
    words: Mapping[str, str] | None = None,
    onnx: bool = False,
    version: str | None = None,
    replace: bool = False,
    verify: bool | Path = False,
    sign_with: Path | None = None,
) -> Exported:
    """Write a complete bundle from a finished run, whole or not at all.

    A run that pre-trained without labels leaves no model but an encoder: the bundle then has ``models/pretrained.pt``,
    from which its overlays and a federation's job go on, and the encoder alone as TorchScript.

    Args:
        run: simulator workspace, downloaded job result, or server's run folder.
        out: the bundle's own folder; its name says the task (``…_segmentation``).
        model: ``selected`` (best mean validation score) or ``last``.
        site: merge this site's private tensors; needed after partial sharing.
        site_run: that site's run folder, when it is not in the workspace.
        unseen: a site that never trained: merge the mean of the private tensors that all sites released.
        words: the words of the site for which the bundle is made; they and its name are written into its configs.
        onnx: also write ``models/model.onnx`` (``encoder.onnx`` of a pre-training).
        version: of the bundle; None = the base bundle's and the first letters of the weights' hash.
        replace: replace an exported bundle at ``out``.
        verify: run MONAI's own checks and compare inference before and after, on this image or a generated one.
        sign_with: a startup kit, with whose key the bundle is signed.

    Raises:
        BundleError: the kit has no key.
        ExportError: the run is not finished, its model is not complete or not finite, the installed bundle is not the
            run's, a check fails, or ``out`` cannot be written. Nothing is left behind then.
    """
    out = Path(out).expanduser().absolute()
    check_target(out, replace)
    key = read_key(sign_with) if sign_with else None
    check_image(verify if isinstance(verify, Path) else None)
    finished = read_finished(run)
    store = open_store(finished)
    check_apart(out, store.bundle.root)
    exporter = exporter_of(without_parts(store.bundle, finished.method), finished.method)
    weights = complete_weights(finished, store, exporter, model, site, site_run, unseen)
    own = site_facts(store.bundle, finished.plan, unseen or site, words or {})
    exporter.site_facts = {**own, **weights.settings}
    federation = provenance(finished, store, exporter, weights, model, site)
    federation |= facts_to_set(store.bundle, unseen or site, words or {})
    check_version(version, store.bundle.root)
    with staged(out) as folder:
        made = _fill(
            folder, out, exporter, weights, federation, store.classes, version=version, onnx=onnx, verify=verify
        )
        if key:
            sign(folder, *key)
        return made


def _fill(
    folder: Path,
    out: Path,
    exporter: Exporter,
    weights: Weights,
    federation: dict[str, Any],
    classes: Sequence[Structure],
    *,
    version: str | None,
    onnx: bool,
    verify: bool | Path,
) -> Exported:
    bundle, part = exporter.bundle, exporter.part
    copy_parts(bundle.root, folder)
    (folder / MODELS).mkdir()
    with (folder / MODELS / part.weights).open("wb") as stream:  # given a path, torch writes that into the file
        torch.save(dict(weights.tensors), stream)
    overlays = write_configs(exporter, folder)
    config = folder / CONFIGS / bundle.config_file("inference").name
    digest = hashlib.sha256((folder / MODELS / part.weights).read_bytes()).hexdigest()
    version = version or f"{bundle.version.partition('+')[0]}+{digest[:8]}"
    meta = metadata(folder, config, version, federation, exporter, classes)
    _write_json(folder / CONFIGS / METADATA, meta)
    checks = [write_torchscript(folder, config, part)]
    if onnx:
        checks.append(write_onnx(folder, config, part))
    if verify:
        checks += verify_bundle(folder, config, exporter, weights.tensors, verify if isinstance(verify, Path) else None)
    meta["federation"] |= {"checks": checks}
    _write_json(folder / CONFIGS / METADATA, meta)
    _write_card(folder, config, meta, exporter)
    write_digests(folder, {"bundle": bundle.name, "overlays": exporter.baked[0]})
    return Exported(out, version, weights.round, overlays, checks, exporter.next_steps(out))


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_card(folder: Path, config: Path, meta: Mapping[str, Any], exporter: Exporter) -> None:
    network, _ = open_network(folder, config, exporter.part)
    readme, base = folder / DOCS / "README.md", folder / DOCS / "bundle.md"
    if readme.is_file() and not base.exists():  # an exported bundle that was trained on has both
        base.write_text(BASE_NOTE + readme.read_text(encoding="utf-8"), encoding="utf-8")
    readme.parent.mkdir(exist_ok=True)
    readme.write_text(card(meta, exporter, config, folder, network), encoding="utf-8")
