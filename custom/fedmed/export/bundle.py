"""From a finished run to a complete MONAI bundle."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from monai.bundle import ConfigParser

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import BundleParser, parsed
from fedmed.bundles.digests import read_key, sign, write_digests
from fedmed.bundles.metadata_classes import channel_names
from fedmed.bundles.site_facts import attributes_fault, attributes_needed
from fedmed.data.structure import Structure, titles
from fedmed.errors import ExportError
from fedmed.export.card import card
from fedmed.export.class_names import unchosen_names, with_names
from fedmed.export.configs import write_configs
from fedmed.export.exporter import Exporter, exporter_of
from fedmed.export.finished_run import SELECTED, read_finished
from fedmed.export.folder import CONFIGS, DOCS, METADATA, MODELS, check_apart, check_target, copy_parts, staged
from fedmed.export.formats import open_network, write_onnx, write_torchscript
from fedmed.export.verify import check_image
from fedmed.export.verify import verify as verify_bundle
from fedmed.export.weights import Weights, complete_weights, open_store, without_parts
from fedmed.export.weights_origin import provenance
from fedmed.jobs.study import Study
from fedmed.kinds.kind import CardWords
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.settings.site_file import WORD_NAME, WORD_TEXT

BASE_NOTE = "> The bundle that this one was made from. Weights, settings and overlays have changed: see "
BASE_NOTE += "[README.md](README.md).\n\n"
_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
AT_EXPORT = "at_export"  # of federation.yaml: id of an exported config -> tensor of the run's that it gets


@dataclass(frozen=True)
class Exported:
    """Result of an export.

    Attributes:
        out: the bundle's folder.
        version: in its metadata.
        round: the round after which the model was aggregated, from 0; -1: the starting model.
        overlays: the overlays that are left in it.
        checks: what was checked, in words.
        next_steps: what one does with it, as lines for a terminal.
        warning: a sentence on names of classes that nobody has chosen, or empty.
    """

    out: Path
    version: str
    round: int
    overlays: list[str]
    checks: list[str]
    next_steps: list[str]
    warning: str


def export_bundle(
    run: str | Path,
    out: str | Path,
    *,
    model: str = SELECTED,
    site: str | None = None,
    site_run: Path | None = None,
    unseen: str | None = None,
    words: Mapping[str, str] | None = None,
    classes: Sequence[str] = (),
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
        classes: names of what 1, 2, … stand for in masks, for a run whose study gave none.
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
    finished = with_names(read_finished(run), classes)
    store = open_store(finished)
    check_apart(out, store.bundle.root)
    exporter = exporter_of(without_parts(store.bundle, finished.method), finished.method)
    weights = complete_weights(finished, store, exporter, model, site, site_run, unseen)
    facts = site_facts(store.bundle, finished.study, unseen or site, words or {})
    exporter.site_facts = {**facts, **weights.settings}
    federation = provenance(finished, store, exporter, weights, model, site)
    federation |= facts_to_set(store.bundle, unseen or site, words or {})
    check_version(version, store.bundle.root)
    with staged(out) as folder:
        made = _fill(
            folder, out, exporter, weights, federation, store.classes,
            warning=unchosen_names(finished.study, exporter, store.classes), version=version, onnx=onnx, verify=verify,
        )  # fmt: skip
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
    warning: str,
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
    return Exported(out, version, weights.round, overlays, checks, exporter.next_steps(out), warning)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_card(folder: Path, config: Path, meta: Mapping[str, Any], exporter: Exporter) -> None:
    network, _ = open_network(folder, config, exporter.part)
    readme, base = folder / DOCS / "README.md", folder / DOCS / "bundle.md"
    if readme.is_file() and not base.exists():  # an exported bundle that was trained on has both
        base.write_text(BASE_NOTE + readme.read_text(encoding="utf-8"), encoding="utf-8")
    readme.parent.mkdir(exist_ok=True)
    readme.write_text(card(meta, exporter, config, folder, network), encoding="utf-8")


def check_version(version: str | None, base: Path) -> None:
    """Refuse a text that is not a version, or one that the base bundle already has."""
    if version is not None and not _VERSION.fullmatch(version):
        raise ExportError(f"--version '{version}' is not a version; write it as 1.0.0 or 1.0.0+hospital")
    if version in json.loads((base / CONFIGS / METADATA).read_text(encoding="utf-8"))["changelog"]:
        raise ExportError(f"--version '{version}' is already in the base bundle's changelog; choose another")


def metadata(
    folder: Path,
    config: Path,
    version: str,
    federation: Mapping[str, Any],
    exporter: Exporter,
    classes: Sequence[Structure],
) -> dict[str, Any]:
    """The base bundle's metadata with what the export changes.

    Args:
        folder, config: the exported bundle, with the base bundle's metadata, and its ``inference`` config.
        version: the new version.
        federation: see :func:`fedmed.export.weights_origin.provenance`.
        exporter: of the run's kind.
        classes: of the study.
    """
    content = json.loads((folder / CONFIGS / METADATA).read_text(encoding="utf-8"))
    content["version"] = version
    # The same weights may be exported of two federations.
    older = {known: text for known, text in content["changelog"].items() if known != version}
    content["changelog"] = {version: _change(federation, exporter.change), **older}
    # The base says that it has no weights; this bundle has.
    content["description"] = re.sub(r"\s*[^.]*\bwithout weights\b[^.]*\.", "", content["description"])
    content["description"] += exporter.description
    name = federation["score"]["name"]
    scores = [row[f"test_{name}"] for row in federation["sites"] if row.get(f"test_{name}") is not None]
    content["eval_metrics"] = {f"mean_test_{name}_of_sites": sum(scores) / len(scores)} if scores else {}
    _fit_format(content, folder, config)
    _name_classes(content, classes, exporter.kind.card)
    return {**content, "federation": dict(federation)}


def _change(federation: Mapping[str, Any], what: str) -> str:
    n, score = sum(federation["number_of_sites"].values()), federation["score"]
    reached = federation[f"validation_{score['name']}"]
    best = f", mean validation {score['label']} {reached:.3f}" if reached is not None else ""
    baked = f"; overlays baked in: {', '.join(federation['overlays'])}" if federation["overlays"] else ""
    done = federation["model_round"]
    when = f"after round {done} of {federation['rounds_done']}" if done else "the starting model"
    when = f"mean of {len(rounds)} models, the last {when}" if (rounds := federation.get("mean_of")) else when
    return f"{what} the federated job {federation['job']}, {n} sites, {when}{best}{baked}"


def _fit_format(content: dict[str, Any], folder: Path, config: Path) -> None:
    """Sizes and channels as the run had them: the network's input is one window of the inferer, or one picture."""
    parser = ConfigParser()
    parser.read_config(str(config))
    parser["bundle_root"] = str(folder)
    formats = content["network_data_format"]
    if "channels" in parser:  # a network that sees fewer frames than the bundle's: those channels that are the last
        image, channels = formats["inputs"]["image"], parser.get_parsed_content("channels")
        names = list(image["channel_def"].values())[-channels:]
        image |= {"num_channels": channels, "channel_def": dict(zip(map(str, range(channels)), names, strict=False))}
    before = list(formats["inputs"]["image"]["spatial_shape"])
    size = _size(parser, len(before))
    for side in formats.values() if size else ():
        for tensor in side.values():
            if list(tensor["spatial_shape"]) == before:
                tensor["spatial_shape"] = size


def _name_classes(content: dict[str, Any], classes: Sequence[Structure], words: CardWords) -> None:
    """The outputs and what is said of them; where the study names others than the bundle, the words are made anew."""
    before, names = channel_names(content), [one.name for one in classes]
    content["classes"] = [one.facts() for one in classes]
    for tensor in content["network_data_format"]["outputs"].values():
        channels = names if tensor["format"] == "classes" else ["background", *names]
        tensor |= {"num_channels": len(channels), "channel_def": dict(zip(map(str, range(99)), channels, strict=False))}
        if tensor["format"] == "classes":
            tensor["spatial_shape"] = [1, len(channels)]
    if names != before and words.task:
        modality = content["network_data_format"]["inputs"]["image"].get("modality", "image")
        numbered = ", ".join(f"{place} is {one.title}" for place, one in enumerate(classes, start=1))
        content["name"] = content["task"] = words.task.format(names=titles(classes), modality=modality)
        content["label_classes"] = content["pred_classes"] = words.values.format(names=numbered)


def _size(parser: ConfigParser, axes: int) -> list[int] | None:
    """Voxels or pixels of the network's input; None where the configuration does not say it."""
    size: Any = getattr(parser.get_parsed_content("inferer"), "roi_size", None) or parser.get("image_size")
    sizes = list(size) if isinstance(size, list | tuple) else [size] * axes
    return sizes if len(sizes) == axes and all(type(n) is int and n > 0 for n in sizes) else None


def site_facts(bundle: Bundle, study: Study, site: str | None, words: Mapping[str, str]) -> dict[str, Any]:
    """Return ids of the exported configs -> values that are those of the one site for which it is made.

    Its place among the sites that trained is such a value wherever the bundle has it; words, and with them the site's
    name, only where a person gives words.

    Args:
        bundle: of the run, with its overlays.
        study: of the run.
        site: whose model it is, or for which it is, if it never trained; None: the model of all.
        words: the site's; a file that one names lies below the current folder.

    Raises:
        ExportError: words without a site, of a bundle that takes none, or not those that it needs.
        BundleError: what the bundle makes of them cannot be made, such as of a file that is missing.
    """
    if words and site is None:
        raise ExportError("--word is of the site for which the bundle is made: name that with --site or --unseen")
    known = _inference_ids(bundle)
    training = study.of_role(*TRAINING_ROLES)
    index = training.index(site) if site in training else None
    place: dict[str, Any] = {"site_index": index, "site_count": len(training)} if site is not None else {}
    facts = {id: value for id, value in place.items() if id in known}
    if words and "site_words" not in known:
        raise ExportError(f"bundle '{bundle.name}' takes no words of a site at inference; leave out --word")
    _check_words(bundle, site, words)
    if not words:
        return facts
    facts |= {"site_words": dict(words), **({"site_name": site} if "site_name" in known else {})}
    return facts | _made_of_words(bundle, {**place, **facts})


def _check_words(bundle: Bundle, site: str | None, words: Mapping[str, str]) -> None:
    needed = attributes_needed(bundle.parser())
    if words and (fault := attributes_fault(needed, words)):
        raise ExportError(f"bundle '{bundle.name}': {fault}, here as --word")
    if not words and site is not None and needed and bundle.federation.get(AT_EXPORT):
        options = " ".join(f"--word {name}=…" for name in needed)
        raise ExportError(f"the network of bundle '{bundle.name}' is made of words of site {site}: give {options}")


def _made_of_words(bundle: Bundle, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Make what the bundle asks an export to write in place of words, such as the vector of a text encoder."""
    sources = bundle.federation.get(AT_EXPORT) or {}
    parser = bundle.parser(device="cpu", dataset_dir=str(Path.cwd()), **facts)
    made = {id: parsed(parser, source) for id, source in sources.items()}
    return {id: value.tolist() for id, value in made.items() if value is not None}


def facts_to_set(bundle: Bundle, site: str | None, words: Mapping[str, str]) -> dict[str, Any]:
    """For the metadata: what of a site whoever runs the bundle must set; {} where it lacks nothing.

    Returns:
        ``site_facts_needed``: ids of ``configs/inference.yaml``; ``words_needed``: names of the words among them.
    """
    if site is None or words:
        return {}
    ids = [id for id in ("site_name", "site_words") if id in _inference_ids(bundle)]
    return {"site_facts_needed": ids, "words_needed": list(attributes_needed(bundle.parser()))} if ids else {}


def _inference_ids(bundle: Bundle) -> Collection[str]:
    return BundleParser.load_config_file(bundle.config_file("inference"))


def words_of(given: Sequence[str]) -> dict[str, str]:
    """Words of a site as a person gives them, ``NAME=TEXT`` each; the same as in a site's YAML.

    Raises:
        ExportError: one that is not such a word.
    """
    words = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not re.fullmatch(WORD_NAME, name) or not re.fullmatch(WORD_TEXT, text):
            raise ExportError(f"--word '{one}' is not a word of a site; write it as procedure=nephrectomy")
        words[name] = text
    return words
