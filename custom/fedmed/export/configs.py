"""Configurations with a run's overlays and overrides baked in, so that one file says what the weights are for."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from fedmed.bundles.bundle_parser import FITTED, footprint, merged
from fedmed.export.exporter import Exporter
from fedmed.export.folder import CONFIGS

MAIN = ("inference", "train")
NO_OVERLAYS = (*MAIN, "metadata", "federation")


def write_configs(exporter: Exporter, folder: Path) -> list[str]:
    """Bake the run's overlays and overrides into ``inference`` and ``train``; remove overlays of other models.

    Args:
        exporter: of the run's bundle and kind.
        folder: the exported bundle, which holds a copy of the configs.

    Returns:
        Names of the overlays that are left: those that leave the network and the preparation of an image as they are.
    """
    bundle, (names, overrides) = exporter.bundle, exporter.baked
    overlays = [bundle.config_file(name) for name in names]
    for name in MAIN:
        path = bundle.config_file(name)
        header = f"Made by FedMed from configs/{path.name} of {bundle.name} {bundle.version}"
        baked = _sources(names, overrides, exporter.site_facts)
        header += f" with {baked}:\nwhat the weights in models/ were trained with. " if baked else ".\n"
        header += "The comments are in that bundle."
        content = merged(path, overlays, overrides)
        content |= exporter.start(content)
        text = json.dumps(content, indent=4) + "\n" if path.suffix == ".json" else to_yaml(content, header)
        (folder / CONFIGS / path.name).write_text(text, encoding="utf-8")
    left, mains = [], [folder / CONFIGS / bundle.config_file(main).name for main in MAIN]
    fitted = {main: footprint(merged(main), FITTED) for main in mains}
    for path in sorted((folder / CONFIGS).iterdir()):
        if path.suffix not in (".yaml", ".yml", ".json") or path.stem in NO_OVERLAYS:
            continue
        if path.stem in names or (path.stem not in exporter.kept and _unfit(fitted, path)):
            path.unlink()
        else:
            left.append(path.stem)
    return left


def _sources(names: Collection[str], overrides: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    overlays = [f"the overlay{'s' * (len(names) > 1)} {', '.join(names)}"] * bool(names)
    settings = [name for name in overrides if name not in facts]
    values = [f"the job's {', '.join(settings)}"] * bool(settings)
    words = ["facts of the site for which it was made"] * bool(facts)
    return " and ".join([*overlays, *values, *words])


def _unfit(fitted: Mapping[Path, Mapping[str, Any]], overlay: Path) -> bool:
    """True where an overlay makes a network or an input that the weights were not trained for.

    Args:
        fitted: config -> what its network and input are made of.
    """
    return any(footprint(merged(main, [overlay]), FITTED) != entries for main, entries in fitted.items())


class _Dumper(yaml.SafeDumper):
    """Short lists on one line, as a person writes them; nothing is given a name and repeated by it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def short_list(self, data: list[Any]) -> yaml.Node:
        """Numbers and plain words; an expression is easier to read on a line of its own."""
        nested = any(isinstance(item, list | dict) or str(item).startswith("$") for item in data)
        short = len(str(data)) < 80 or all(isinstance(item, float) for item in data)
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=not nested and short)


_Dumper.add_representer(list, _Dumper.short_list)


def to_yaml(config: Mapping[str, Any], header: str) -> str:
    """Readable YAML in the given order, below comment lines."""
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    return comment + yaml.dump(dict(config), Dumper=_Dumper, sort_keys=False, width=116, allow_unicode=True)
