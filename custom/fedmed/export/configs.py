"""Configurations with a run's overlays and overrides baked in, so that one file says what the weights are for."""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml
from monai.bundle import ConfigParser
from monai.bundle.reference_resolver import ReferenceResolver
from monai.bundle.utils import merge_kv

from fedmed.bundles.load import Bundle
from fedmed.bundles.pretraining import PRETRAINED, pretrained, pretraining, without_pretraining
from fedmed.export.folder import CONFIGS

MAIN = ("inference", "train")
NO_OVERLAYS = (*MAIN, "metadata", "federation")
# What MONAI and MONAI Label call the network, and all that happens to an image before it: weights fit these alone.
FITTED = ("network_def", "preprocessing", "pre_transforms")
_REFERENCE = re.compile(r"@([\w:#]+)")


def merged(base: Path, overlays: Collection[Path] = (), overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Merge configs as MONAI does, and keep what the base knows, or what that refers to.

    Args:
        base: ``inference`` or ``train``.
        overlays: files merged over it, in order; what they say of other configs is left out.
        overrides: plain values, merged last.
    """
    parser = ConfigParser(config=ConfigParser.load_config_file(base))
    known = set(parser.config)
    contents = [ConfigParser.load_config_file(path) for path in overlays]
    for content in [*contents, dict(overrides or {})]:
        for key, value in content.items():
            top, *nested = ReferenceResolver.split_id(key.removeprefix("+"))
            if top in parser.config or not (nested or key.startswith("+")):
                merge_kv(parser, key, value)
    wanted = known | set(footprint(parser.config, known))
    return {key: value for key, value in parser.config.items() if key in wanted}


def speaks_of(base: Path, overlay: Path) -> bool:
    """Whether an overlay changes anything that a config knows, such as ``inference``."""
    known = set(ConfigParser.load_config_file(base))
    return any(
        ReferenceResolver.split_id(key.removeprefix("+"))[0] in known for key in ConfigParser.load_config_file(overlay)
    )


def footprint(config: Mapping[str, Any], ids: Collection[str]) -> dict[str, Any]:
    """Top-level entries that ``ids`` are made of: themselves and all that they refer to."""
    found, waiting = {}, [id for id in ids if id in config]
    while waiting:
        id = waiting.pop()
        if id not in found:
            found[id] = config[id]
            waiting += [name for name in _references(config[id]) if name in config]
    return found


def _references(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        return set().union(*map(_references, value.values()), set())
    if isinstance(value, list):
        return set().union(*map(_references, value), set())
    if not isinstance(value, str):
        return set()
    return {re.split("::|#", name.lstrip(":#"))[0] for name in _REFERENCE.findall(value)}


def write_configs(bundle: Bundle, folder: Path) -> list[str]:
    """Bake the run's overlays and overrides into ``inference`` and ``train``; remove overlays of other models.

    Args:
        bundle: the installed bundle with the run's overlays and overrides.
        folder: the exported bundle, which holds a copy of the configs.

    Returns:
        Names of the overlays that are left: those that leave the network and the preparation of an image as they are.
    """
    names, overrides = without_pretraining(bundle)
    overlays = [bundle.config_file(name) for name in names]
    for name in MAIN:
        path = bundle.config_file(name)
        header = f"Made by FedMed from configs/{path.name} of {bundle.name} {bundle.version}"
        baked = _sources(names, overrides)
        header += f" with {baked}:\nwhat the weights in models/ were trained with. " if baked else ".\n"
        header += "The comments are in that bundle."
        content = merged(path, overlays, overrides)
        _write(folder / CONFIGS / path.name, content | _start(bundle, content), header)
    kept = {made.overlay} if (made := pretraining(bundle)) else set()  # another network around the same encoder
    left = []
    for path in sorted((folder / CONFIGS).iterdir()):
        if path.suffix not in (".yaml", ".yml", ".json") or path.stem in NO_OVERLAYS:
            continue
        mains = [folder / CONFIGS / bundle.config_file(main).name for main in MAIN]
        if path.stem in names or (path.stem not in kept and any(_unfit(main, path) for main in mains)):
            path.unlink()
        else:
            left.append(path.stem)
    return left


def _start(bundle: Bundle, config: Mapping[str, Any]) -> dict[str, Any]:
    """A stand-alone training that began with a pre-trained file, which is not here, begins with the model instead."""
    made = pretraining(bundle)
    value = config.get(made.setting) if made and not pretrained(bundle) else None
    return {made.setting: value.replace(PRETRAINED, "model.pt")} if isinstance(value, str) else {}


def _sources(names: Collection[str], overrides: Mapping[str, Any]) -> str:
    overlays = [f"the overlay{'s' * (len(names) > 1)} {', '.join(names)}"] * bool(names)
    values = [f"the job's {', '.join(overrides)}"] * bool(overrides)
    return " and ".join([*overlays, *values])


def _unfit(main: Path, overlay: Path) -> bool:
    """Whether an overlay makes a network or an input that the weights were not trained for."""
    return footprint(merged(main), FITTED) != footprint(merged(main, [overlay]), FITTED)


def _write(path: Path, config: Mapping[str, Any], header: str) -> None:
    text = json.dumps(config, indent=4) + "\n" if path.suffix == ".json" else to_yaml(config, header)
    path.write_text(text, encoding="utf-8")


class _Dumper(yaml.SafeDumper):
    """Short lists on one line, as a person writes them; nothing is given a name and repeated by it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_list(self, data: list) -> yaml.Node:
        inline = all(_short(item) for item in data) and len(str(data)) < 80
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=inline)


def _short(item: Any) -> bool:
    """Numbers and plain words; an expression is easier to read on a line of its own."""
    return not isinstance(item, (list, dict)) and not (isinstance(item, str) and item.startswith("$"))


_Dumper.add_representer(list, _Dumper.represent_list)


def to_yaml(config: Mapping[str, Any], header: str) -> str:
    """Readable YAML in the given order, below comment lines."""
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    return comment + yaml.dump(dict(config), Dumper=_Dumper, sort_keys=False, width=116, allow_unicode=True)
