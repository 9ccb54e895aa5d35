"""``metadata.json`` of an exported bundle."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser

from fedmed.bundles.metadata_classes import channel_names
from fedmed.data.structure import Structure, titles
from fedmed.errors import ExportError
from fedmed.export.exporter import Exporter
from fedmed.export.folder import CONFIGS, METADATA
from fedmed.kinds.model_card import CardWords

_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")


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
    if "channels" in parser:
        _keep_last(formats["inputs"]["image"], parser.get_parsed_content("channels"))
    before = list(formats["inputs"]["image"]["spatial_shape"])
    size = _size(parser, len(before))
    for side in formats.values() if size else ():
        for tensor in side.values():
            if list(tensor["spatial_shape"]) == before:
                tensor["spatial_shape"] = size


def _keep_last(image: dict[str, Any], channels: int) -> None:
    """Of a network that sees fewer frames than the bundle's: those channels that are the last."""
    names = list(image["channel_def"].values())[-channels:]
    image |= {"num_channels": channels, "channel_def": dict(zip(map(str, range(channels)), names, strict=False))}


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
