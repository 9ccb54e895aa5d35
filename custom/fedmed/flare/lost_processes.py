"""Processes of sites that are gone, and kits that are at work twice."""

import contextlib
import functools
import logging
import time
from collections import defaultdict, deque
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import RunProcessKey, SystemComponents
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import RunStatus
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection
from nvflare.fuel.f3.sfm.sfm_endpoint import SfmEndpoint

from fedmed.flare.private_flare import (
    JOB_PROCESS,
    CellMessageHeaderKeys,
    FederatedServer,
    JobFailureMsgKey,
    ServerEngine,
)
from fedmed.plain_text import in_terminal

TIMES, SECONDS = 3, 150.0  # so often within so long
AT_SERVER = (
    "site '{site}' connects again and again while it is connected, from {old} and from {new}: its kit is probably "
    "started twice; let the site stop all but one"
)
AT_SITE = (
    "the connection to the server ends again and again: the network breaks it, or this site's kit is started twice, on "
    "another machine or as a copy, which the server's log says; stop all but one"
)
log = logging.getLogger("fedmed.server")
ORPHAN_SECONDS = 10.0  # for a killed process to be gone
LAST_WORD = 2.0  # seconds that NVFlare gives a job's process for its last message, after which it counts as ended
STARTED_ANEW = "it has started anew and runs this job no longer"
SITE_ENDED = (
    "site '{site}': its process for this job ended (code {code}): it was killed, as for lack of memory, or failed; the "
    "cause is in that site's own log. NVFlare ends the whole job then"
)
SERVER_ENDED = "the server's process for this job ended without its last word: it was killed, as for lack of memory"
SERVER_STARTED_ANEW = "the server was started anew while this job ran, which ended it"
REMEDY = "fedmed study resume {job_id} NEW_JOB --job JOB writes the job that goes on after the last finished round"
_sync, _failure, _complete = (
    FederatedServer._sync_client_jobs,
    FederatedServer.process_job_failure,
    ServerEngine.wait_for_complete,
)


class Repeats:
    """Tells when something has happened to a name ``TIMES`` times within ``SECONDS``, and counts anew then."""

    def __init__(self) -> None:
        self._when: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=TIMES))

    def again(self, name: str) -> bool:
        """Count once more."""
        when, now = self._when[name], time.monotonic()
        when.append(now)
        if len(when) < TIMES or now - when[0] > SECONDS:
            return False
        when.clear()
        return True


def watch_server() -> None:
    """Let this process, a server's waiting one, say which sites connect while they are connected."""
    original, repeats, log = SfmEndpoint.add_connection, Repeats(), logging.getLogger("fedmed.server")

    @functools.wraps(original)
    def add_connection(self: SfmEndpoint, sfm_conn: SfmConnection) -> None:
        before, site = list(self.connections), self.endpoint.name
        original(self, sfm_conn)
        if before and len(FQCN.split(site)) == 1 and repeats.again(site):
            old, new = (in_terminal(_peer(one.conn), 80) for one in (before[-1], sfm_conn))
            log.warning(AT_SERVER.format(site=in_terminal(site, 80), old=old, new=new))

    if not hasattr(original, "__wrapped__"):
        SfmEndpoint.add_connection = add_connection


def watch_site() -> None:
    """Let this process, of a site, say when its connection to the server ends again and again."""
    original, repeats, log = ConnManager.close_connection, Repeats(), logging.getLogger("fedmed.site")

    @functools.wraps(original)
    def close_connection(self: ConnManager, connection: Connection) -> None:
        known = self.sfm_conns.get(connection.name)
        name = known.sfm_endpoint.endpoint.name if known and known.sfm_endpoint else ""
        original(self, connection)
        if name == FQCN.ROOT_SERVER and not self.stopped and repeats.again(name):
            log.warning(AT_SITE)

    if not hasattr(original, "__wrapped__"):
        ConnManager.close_connection = close_connection


def _peer(connection: Any) -> str:
    return str(connection.get_conn_properties().get(DriverParams.PEER_ADDR.value, "?"))


def note(folder: Path, job_id: str, text: str) -> None:
    """Write why a job ended into its own log at the server, which its lead downloads, and into the server's."""
    text = f"job {job_id}: {text}. {REMEDY.format(job_id=job_id)}"
    log.error(text)
    line = f"{datetime.now():%Y-%m-%d %H:%M:%S} - fedmed.server - ERROR - {text}\n"
    try:
        with (folder / "log.txt").open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        log.error("job %s: its log cannot be written: %s", job_id, error)


def sync_client_jobs(self: FederatedServer, request: Any, client_token: str) -> list[str]:
    """NVFlare's, and beyond it: tell running jobs of a site that has started anew and does not run them."""
    jobs_to_abort: list[str] = _sync(self, request, client_token)
    name = request.get_header(CellMessageHeaderKeys.CLIENT_NAME)
    runs = request.get_header(CellMessageHeaderKeys.JOB_IDS)
    runs = set(runs) if isinstance(runs, (list, tuple, set)) else set()
    for job_id, facts in list(self.engine.run_processes.items()):
        for token, client in (facts.get(RunProcessKey.PARTICIPANTS) or {}).items():
            if client.name == name and token != client_token and job_id not in runs:
                self._notify_dead_job(client, job_id, f"site '{name}': {STARTED_ANEW}")
                # Nobody is left who could report how the job ended there; without this the end would wait for it.
                self.engine.job_runner.resolve_client_outcome(job_id, name)
    return jobs_to_abort


def process_job_failure(self: FederatedServer, request: Any) -> Any:
    """NVFlare's, after the job's log has got the site and the cause."""
    token, report = request.get_header(CellMessageHeaderKeys.TOKEN), request.payload
    client = self.client_manager.clients.get(token) if token else None
    if client is not None and isinstance(report, dict):
        _note_failure(self.engine, client.name, report.get(JobFailureMsgKey.JOB_ID), report.get(JobFailureMsgKey.CODE))
    return _failure(self, request)


def _note_failure(engine: Any, site: str, job_id: Any, code: object) -> None:
    runs = isinstance(job_id, str) and job_id in engine.run_processes and not _ends_already(engine, job_id)
    if runs and isinstance(code, int) and code and engine.job_runner.is_client_outcome_pending(job_id, site):
        note(Path(engine.args.workspace) / job_id, job_id, SITE_ENDED.format(site=site, code=code))


def wait_for_complete(self: ServerEngine, workspace: str, job_id: str, process: Any) -> None:
    """NVFlare's, after the job's log has got that its process at the server is gone."""
    process.wait()
    facts, until = self.run_processes.get(job_id) or {}, time.monotonic() + LAST_WORD
    while facts and not facts.get(RunProcessKey.PROCESS_FINISHED) and time.monotonic() < until:
        time.sleep(0.1)
    if facts and not facts.get(RunProcessKey.PROCESS_FINISHED) and not _ends_already(self, job_id):
        note(Path(workspace) / job_id, job_id, SERVER_ENDED)
    _complete(self, workspace, job_id, process)


def _ends_already(engine: Any, job_id: str) -> bool:
    """Tell whether somebody has aborted the job or something else ended it: its processes then end because of that."""
    job = engine.job_runner.running_jobs.get(job_id)
    return job_id in engine.exception_run_processes or (job is not None and job.run_aborted)


def end_orphans(root: Path, job_id: str) -> None:
    """Kill the server's processes of a job that have outlived the waiting process: they would write beside us."""
    orphans = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it ended meanwhile, or is somebody else's
            line = process.cmdline()
            if JOB_PROCESS in line and job_id in line and str(root) in line:
                process.kill()
                orphans.append(process)
    psutil.wait_procs(orphans, timeout=ORPHAN_SECONDS)


def _offer(jobs: Any, folder: Path, job_id: str, fl_ctx: FLContext) -> None:
    try:
        jobs.save_workspace(job_id, [str(folder)], fl_ctx)  # the folder stays: a resumed job looks there
    except Exception as error:  # noqa: BLE001 - whatever a storage raises, the job must not stay RUNNING
        log.error("job %s: its result cannot be offered for download: %s", job_id, error)


class LostProcesses(FLComponent):
    """Part of a server's kit; takes its places when NVFlare builds it, and looks after jobs of an earlier start."""

    def __init__(self) -> None:
        super().__init__()
        FederatedServer._sync_client_jobs = sync_client_jobs
        FederatedServer.process_job_failure = process_job_failure
        ServerEngine.wait_for_complete = wait_for_complete
        watch_server()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Once the server has started: end what ran before, for its waiting process is gone."""
        if event_type == EventType.SYSTEM_START:
            self._end_earlier(fl_ctx)

    def _end_earlier(self, fl_ctx: FLContext) -> None:
        engine = fl_ctx.get_engine()
        jobs = engine.get_component(SystemComponents.JOB_MANAGER)
        root = Path(engine.get_workspace().get_root_dir())
        for job in jobs.get_jobs_by_status([RunStatus.RUNNING, RunStatus.DISPATCHED], fl_ctx):
            if job.job_id in engine.run_processes:
                continue
            end_orphans(root, job.job_id)
            folder = root / job.job_id
            if folder.is_dir():
                note(folder, job.job_id, SERVER_STARTED_ANEW)
                _offer(jobs, folder, job.job_id, fl_ctx)
            jobs.set_status(job.job_id, RunStatus.FINISHED_ABORTED, fl_ctx)
