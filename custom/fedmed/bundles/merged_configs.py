"""Merge a bundle's configurations as MONAI does, and tell what an entry is made of."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from monai.bundle.reference_resolver import ReferenceResolver
from monai.bundle.utils import merge_kv

from fedmed.bundles.bundle_parser import BundleParser

# What MONAI and MONAI Label call the network, and all that happens to an image before it: weights fit these alone.
FITTED = ("network_def", "preprocessing", "pre_transforms")


def merged(base: Path, overlays: Collection[Path] = (), overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Merge configs as MONAI does, and keep what the base knows, or what that refers to.

    Args:
        base: ``inference`` or ``train``.
        overlays: files merged over it, in order; what they say of other configs is left out.
        overrides: plain values, merged last.
    """
    parser = BundleParser(config=BundleParser.load_config_file(base))
    content: dict[str, Any] = parser.config  # type: ignore[assignment] # plain until it is parsed
    known = set(content)
    for values in [*map(BundleParser.load_config_file, overlays), dict(overrides or {})]:
        for key, value in values.items():
            top, *nested = ReferenceResolver.split_id(key.removeprefix("+"))
            if top in content or not (nested or key.startswith("+")):
                merge_kv(parser, key, value)
    wanted = known | set(footprint(content, known))
    return {key: value for key, value in content.items() if key in wanted}


def speaks_of(base: Path, overlay: Path) -> bool:
    """Whether an overlay changes anything that a config knows, such as ``inference``."""
    known, changed = BundleParser.load_config_file(base), BundleParser.load_config_file(overlay)
    return any(ReferenceResolver.split_id(key.removeprefix("+"))[0] in known for key in changed)


def unknown(base: Path, names: Collection[str]) -> list[str]:
    """Which of these entries a config does not have: :func:`merged` would leave them out."""
    return sorted(set(names) - set(BundleParser.load_config_file(base)))


def footprint(config: Mapping[str, Any], ids: Collection[str]) -> dict[str, Any]:
    """Top-level entries that ``ids`` are made of: themselves and all that they refer to."""
    found, waiting = {}, [id for id in ids if id in config]
    while waiting:
        id = waiting.pop()
        if id not in found:
            found[id] = config[id]
            names = {
                ReferenceResolver.split_id(ref)[0] for ref in ReferenceResolver.find_refs_in_config(config[id], id)
            }
            waiting += [name for name in names if name in config]
    return found
