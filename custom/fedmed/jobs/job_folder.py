"""Read an NVFlare job folder: who runs what, with which plain arguments."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmed.errors import JobError


@dataclass(frozen=True)
class Job:
    """The plain arguments of a job.

    Attributes:
        name: from ``meta.json``.
        controller: arguments of the controller.
        aggregator: arguments of the aggregator component.
        persistor: arguments of the persistor component.
        clients: site -> arguments of its executor.
        app: folder of the server's app.
    """

    name: str
    controller: Mapping[str, Any]
    aggregator: Mapping[str, Any]
    persistor: Mapping[str, Any]
    clients: Mapping[str, Mapping[str, Any]]
    app: Path


def read_job(folder: Path) -> Job:
    """Read a job folder.

    Raises:
        JobError: a file is missing or malformed, or an app lacks what a federation needs; names file and key.
    """
    folder = Path(folder)
    meta = _read_json(folder / "meta.json")
    deploy = meta.get("deploy_map")
    if not isinstance(deploy, dict):
        raise JobError(f"{folder / 'meta.json'}: 'deploy_map' (app -> sites) is missing")
    server, clients = None, {}
    for app, sites in deploy.items():
        for site in sites:
            if site == "server":
                server = folder / app / "config" / "config_fed_server.json"
            else:
                clients[site] = _executor_args(folder / app / "config" / "config_fed_client.json")
    if server is None or not clients:
        raise JobError(f"{folder / 'meta.json'}: 'deploy_map' needs the server and at least one site; it has {deploy}")
    return Job(meta.get("name", folder.name), *_server_args(server), clients, server.parents[1])


def _server_args(path: Path) -> tuple[Mapping, Mapping, Mapping]:
    config = _read_json(path)
    components = {c.get("id"): c.get("args", {}) for c in config.get("components", [])}
    for needed in ("aggregator", "persistor"):
        if needed not in components:
            raise JobError(f"{path}: has no component with the id '{needed}'")
    if len(config.get("workflows", [])) != 1:
        raise JobError(f"{path}: has {len(config.get('workflows', []))} workflows, expected one controller")
    return config["workflows"][0].get("args", {}), components["aggregator"], components["persistor"]


def _executor_args(path: Path) -> Mapping[str, Any]:
    for entry in _read_json(path).get("executors", []):
        if {"train", "evaluate"} & set(entry.get("tasks", [])):
            return entry["executor"].get("args", {})
    raise JobError(f"{path}: no executor takes the task 'train' or 'evaluate'")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise JobError(f"{path} is missing; is {path.parent} a job folder?") from error
    except (OSError, ValueError) as error:
        raise JobError(f"{path} is not readable JSON: {error}") from error
