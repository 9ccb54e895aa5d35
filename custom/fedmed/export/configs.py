"""Configurations with a run's overlays and overrides baked in, so that one file says what the weights are for."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from fedmed.bundles.load import Bundle
from fedmed.export.exporter import exporter_of
from fedmed.export.folder import CONFIGS
from fedmed.export.merged_configs import FITTED, footprint, merged

MAIN = ("inference", "train")
NO_OVERLAYS = (*MAIN, "metadata", "federation")


def write_configs(bundle: Bundle, folder: Path) -> list[str]:
    """Bake the run's overlays and overrides into ``inference`` and ``train``; remove overlays of other models.

    Args:
        bundle: the installed bundle with the run's overlays and overrides.
        folder: the exported bundle, which holds a copy of the configs.

    Returns:
        Names of the overlays that are left: those that leave the network and the preparation of an image as they are.
    """
    exporter = exporter_of(bundle)
    names, overrides = exporter.baked
    overlays = [bundle.config_file(name) for name in names]
    for name in MAIN:
        path = bundle.config_file(name)
        header = f"Made by FedMed from configs/{path.name} of {bundle.name} {bundle.version}"
        baked = _sources(names, overrides)
        header += f" with {baked}:\nwhat the weights in models/ were trained with. " if baked else ".\n"
        header += "The comments are in that bundle."
        content = merged(path, overlays, overrides)
        _write(folder / CONFIGS / path.name, content | exporter.start(content), header)
    left = []
    for path in sorted((folder / CONFIGS).iterdir()):
        if path.suffix not in (".yaml", ".yml", ".json") or path.stem in NO_OVERLAYS:
            continue
        mains = [folder / CONFIGS / bundle.config_file(main).name for main in MAIN]
        if path.stem in names or (path.stem not in exporter.kept and any(_unfit(main, path) for main in mains)):
            path.unlink()
        else:
            left.append(path.stem)
    return left


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
