"""A whole federation in one process, from the same job folder: for experiments and tests.

It reads the study that server and sites would find in their apps, and imports no class of FLARE's that the job names by
path. Real federations run on FLARE.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedmed.errors import FedMedError, UpdateRefused
from fedmed.federation.client import Client
from fedmed.federation.server import Server
from fedmed.federation.workflow import run_federation
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job
from fedmed.messages.answers import Answer, Update
from fedmed.messages.task import Task
from fedmed.privacy.limits import SiteLimits
from fedmed.recovery.checkpoint import Checkpoints
from fedmed.recovery.interrupted_workspace import RUN, move_interrupted
from fedmed.recovery.model_store import ModelStore
from fedmed.settings.server import load_server
from fedmed.settings.site import SiteConfig, load_site

log = logging.getLogger("fedmed.loop")


def run_job(
    folder: Path,
    workspace: Path,
    sites: Mapping[str, SiteConfig] | None = None,
    resume: bool = False,
    answer: Callable[[Client, Task], Answer] = Client.answer,
) -> Server:
    """Run a job in this process.

    Args:
        workspace: receives the same tree as a simulator's workspace.
        sites: settings of sites; those not given are looked up as a site would.
        resume: go on with an interrupted run in the workspace, if there is one.

    Returns:
        The server, with the selected model in ``tensors``.

    Raises:
        FedMedError: a malformed job, or too many failed rounds in a row.
    """
    allowed, run = load_server().allowed_classes, RUN
    job = read_job(folder, allowed)
    server_dir = Path(workspace) / "server" / run
    if resume and (earlier := move_interrupted(Path(workspace), job.study.sites)):
        folders = {site: Path(workspace) / site / earlier / "fedmed" for site in job.study.sites}
        Checkpoints(Path(workspace) / "server" / earlier / "fedmed").settle(folders)
        said = job.study.resume.model_dump() if job.study.resume else {}
        job = job.changed({"resume": {**said, "job": earlier}})
    settings = {site: (sites or {}).get(site) or load_site(site) for site in job.study.sites}
    server = Server(job, ModelStore(job, server_dir / "app_server"), server_dir / "fedmed")
    clients = {}
    for site, site_settings in settings.items():
        part = Job.parse(job.text, job.source, site_settings.allowed_classes)  # with the site's own list of classes
        clients[site] = Client(part, site_settings, Path(workspace) / site / run / "fedmed")
    limits = {site: SiteLimits(settings[site], client.folder) for site, client in clients.items()}
    run_federation(server, lambda tasks: _ask(server, clients, limits, tasks, answer))
    return server


def _ask(
    server: Server,
    clients: Mapping[str, Client],
    limits: Mapping[str, SiteLimits],
    tasks: Mapping[str, Task],
    do: Callable[[Client, Task], Answer],
) -> dict[str, Any]:
    results = {}
    for site, task in sorted(tasks.items()):
        try:
            answer = limits[site].answer(task.name, task.round, do(clients[site], task))
            if isinstance(answer, Update):
                server.accept(answer)
            else:
                results[site] = answer
        except UpdateRefused as error:
            log.warning("%s", error)
        except FedMedError as error:
            log.error("site '%s': %s", site, error)
            clients[site].progress.event("error", task, message=str(error))
            limits[site].refused(task.name, task.round, str(error))
            server.fail(site, type(error).__name__)
    return results
