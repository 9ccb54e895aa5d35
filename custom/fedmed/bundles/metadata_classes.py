"""Classes that a bundle's models look for, as its ``configs/metadata.json`` describes them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedmed.data.structure import Structure, described
from fedmed.errors import BundleError


def structures(metadata: Mapping[str, Any], root: Path) -> list[Structure]:
    """The entries of ``classes``: of the bundle's own, and of others that a job may name.

    Raises:
        BundleError: an entry is malformed; says which key.
    """
    try:
        return [Structure(**entry) for entry in metadata.get("classes") or ()]
    except (TypeError, ValidationError) as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) if isinstance(error, ValidationError) else "an entry"
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise BundleError(
            f"{root}/configs/metadata.json: 'classes': {where}: {reason}; docs/bundles.md says how"
        ) from error


def classes_of(configured: Any, metadata: Mapping[str, Any], root: Path) -> list[Structure]:
    """Classes of a model: the names in the configuration, else in ``channel_def``, with what is said of them.

    Args:
        configured: ``classes`` of the merged configuration; no list where it names none.
    """
    names = configured if isinstance(configured, list) else channel_names(metadata)
    return described(names, structures(metadata, root))


def segments(metadata: Mapping[str, Any], root: Path) -> list[Structure]:
    """Structures for the values 1, 2, … of a segmentation: ``channel_def`` of the first output without background.

    Raises:
        BundleError: the bundle is a classifier, or the metadata name only background.
    """
    outputs = (metadata.get("network_data_format") or {}).get("outputs") or {}
    output: Mapping[str, Any] = next(iter(outputs.values()), {})
    if output.get("format") == "classes":
        raise BundleError(f"{root} is a classifier and makes no masks; run it with python -m monai.bundle")
    if not (names := channel_names(metadata)):
        raise BundleError(f"{root}/configs/metadata.json names no segment in channel_def ({output.get('channel_def')})")
    return described(names, structures(metadata, root))


def channel_names(metadata: Mapping[str, Any]) -> list[str]:
    """Names of the first output's channels, in their order, without the background."""
    outputs = (metadata.get("network_data_format") or {}).get("outputs") or {}
    channels: Mapping[str, str] = next((output.get("channel_def") or {} for output in outputs.values()), {})
    return [channels[key] for key in sorted(channels, key=int) if channels[key].lower() != "background"]
