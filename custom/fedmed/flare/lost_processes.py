"""Processes of a job that are gone without a word: noticed at the server, and named in the job's own log.

NVFlare 2.9 knows a site by the token of its last start. A site that starts anew while a job runs (a supervisor, a
reboot) gets another token, and is then never asked for the job's process that it no longer has: the round would wait
for ever. What ends a job is told to the server's waiting process alone, whose log nobody downloads. And a server that
starts anew leaves the jobs that ran before in the state RUNNING.
"""

import contextlib
import logging
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import RunProcessKey, SystemComponents
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import RunStatus
from nvflare.private.defs import CellMessageHeaderKeys, JobFailureMsgKey
from nvflare.private.fed.server.fed_server import FederatedServer
from nvflare.private.fed.server.server_engine import ServerEngine

from fedmed.flare.kits_at_work_twice import watch_server

log = logging.getLogger("fedmed.server")
JOB_PROCESS = "nvflare.private.fed.app.server.runner_process"
ORPHAN_SECONDS = 10.0  # for a killed process to be gone
LAST_WORD = 2.0  # seconds that NVFlare gives a job's process for its last message, after which it counts as ended
STARTED_ANEW = "it has started anew and runs this job no longer"
SITE_ENDED = (
    "site '{site}': its process for this job ended (code {code}): it was killed, as for lack of memory, or failed; the "
    "cause is in that site's own log. NVFlare ends the whole job then"
)
SERVER_ENDED = "the server's process for this job ended without its last word: it was killed, as for lack of memory"
SERVER_STARTED_ANEW = "the server was started anew while this job ran, which ended it"
REMEDY = "scripts/resume.py {job_id} NEW_JOB --job JOB writes the job that goes on after the last finished round"
_sync, _failure, _complete = (
    FederatedServer._sync_client_jobs,
    FederatedServer.process_job_failure,
    ServerEngine.wait_for_complete,
)


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
        note(_folder(engine, job_id), job_id, SITE_ENDED.format(site=site, code=code))


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
    """Whether somebody has aborted the job or something else ended it: its processes then end because of that."""
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


def _folder(engine: Any, job_id: str) -> Path:
    return Path(engine.args.workspace) / job_id


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
