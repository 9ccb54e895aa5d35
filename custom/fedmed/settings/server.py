"""The server's own settings: which classes a job may name there beyond FedMed's."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedmed.errors import SiteConfigError

EXAMPLE = """\
    allowed_classes: [our_package.methods.OurMethod]  # class paths that jobs may name, beside FedMed's own
"""


ALLOWED = "FEDMED_ALLOWED_CLASSES"  # class paths, separated by commas, for a run without a kit


@dataclass(frozen=True)
class ServerConfig:
    """The server's settings, checked.

    Attributes:
        allowed_classes: class paths of methods and rules outside FedMed's own rooms that a job may name.
    """

    allowed_classes: tuple[str, ...] = ()


def load_server(workspace: Path | None = None) -> ServerConfig:
    """Read the server's YAML: ``local/fedmed_server.yaml`` of its kit, then ``$FEDMED_SITE_CONFIGS/server.yaml``.

    Args:
        workspace: the server's kit.

    Returns:
        The settings, with the class paths in ``$FEDMED_ALLOWED_CLASSES``; nothing beyond FedMed's own where there is
        neither.

    Raises:
        SiteConfigError: a file that is not readable, or a wrong key or value; the message shows path, key and an
            example.
    """
    places = [Path(workspace) / "local" / "fedmed_server.yaml"] if workspace else []
    if folder := os.environ.get("FEDMED_SITE_CONFIGS"):
        places.append(Path(folder).expanduser() / "server.yaml")
    path = next((place for place in places if place.is_file()), None)
    listed = tuple(name.strip() for name in os.environ.get(ALLOWED, "").split(",") if name.strip())
    if path is None:
        return ServerConfig(listed)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SiteConfigError(f"{path}: not a readable YAML file ({error}). Example:\n{EXAMPLE}") from error
    if not isinstance(values, Mapping):
        raise SiteConfigError(f"{path}: holds {type(values).__name__}, not 'key: value' lines. Example:\n{EXAMPLE}")
    if unknown := sorted(str(key) for key in set(values) - {"allowed_classes"}):
        raise SiteConfigError(f"{path}: unknown key '{unknown[0]}'. Example:\n{EXAMPLE}")
    return ServerConfig((*class_paths(values.get("allowed_classes"), path), *listed))


def class_paths(value: Any, path: Path) -> tuple[str, ...]:
    """Check ``allowed_classes`` of a YAML.

    Raises:
        SiteConfigError: it is not a list of class paths.
    """
    listed = [] if value is None else value
    if not isinstance(listed, list) or not all(isinstance(name, str) and "." in name.strip(".") for name in listed):
        raise SiteConfigError(f"{path}: key 'allowed_classes' is {value!r}; list class paths. Example:\n{EXAMPLE}")
    return tuple(listed)
