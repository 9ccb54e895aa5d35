"""Merge a bundle's configurations as MONAI does, and tell what an entry is made of."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser
from monai.bundle.reference_resolver import ReferenceResolver
from monai.bundle.utils import merge_kv

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
