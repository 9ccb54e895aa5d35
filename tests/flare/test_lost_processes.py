"""A server's work when processes of jobs are gone; on real kits: tests/e2e/test_faults.py."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from nvflare.apis.client import Client
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import RunProcessKey
from nvflare.apis.job_def import RunStatus
from nvflare.private.defs import CellMessageHeaderKeys, JobFailureMsgKey
from nvflare.private.fed.server.fed_server import FederatedServer
from nvflare.private.fed.server.server_engine import ServerEngine

from fedmed.flare import lost_processes
from fedmed.flare.lost_processes import (
    LostProcesses,
    end_orphans,
    process_job_failure,
    sync_client_jobs,
    wait_for_complete,
)

JOB = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"


class Request:
    def __init__(self, payload=None, **headers):
        self.payload, self._headers = payload, headers

    def get_header(self, key, default=None):
        return self._headers.get(key, default)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server's waiting process with one running job of ct_north and ct_east; NVFlare's own part does nothing."""
    monkeypatch.setattr(lost_processes, "_sync", lambda self, request, token: ["abort this"])
    monkeypatch.setattr(lost_processes, "_failure", lambda self, request: "reply")
    monkeypatch.setattr(lost_processes, "_complete", lambda self, workspace, job_id, process: None)
    (tmp_path / JOB).mkdir()
    reported, resolved = [], []
    clients = {f"token_{name}": Client(name, f"token_{name}") for name in ("ct_north", "ct_east")}
    runner = SimpleNamespace(
        resolve_client_outcome=lambda job_id, name: resolved.append((job_id, name)),
        is_client_outcome_pending=lambda job_id, name: True,
        running_jobs={JOB: SimpleNamespace(run_aborted=False)},
    )
    engine = SimpleNamespace(
        run_processes={JOB: {RunProcessKey.PARTICIPANTS: dict(clients)}},
        exception_run_processes={},
        job_runner=runner,
        args=SimpleNamespace(workspace=str(tmp_path)),
    )
    return SimpleNamespace(
        engine=engine,
        reported=reported,
        resolved=resolved,
        client_manager=SimpleNamespace(clients=clients),
        log=tmp_path / JOB / "log.txt",
        _notify_dead_job=lambda client, job_id, reason: reported.append((client.name, job_id, reason)),
    )


def heartbeat(name, *jobs):
    return Request(**{CellMessageHeaderKeys.CLIENT_NAME: name, CellMessageHeaderKeys.JOB_IDS: list(jobs)})


def test_a_site_that_started_anew_without_the_job_is_told_to_it(server):
    assert sync_client_jobs(server, heartbeat("ct_east"), "a new token") == ["abort this"]
    assert server.reported == [("ct_east", JOB, "site 'ct_east': it has started anew and runs this job no longer")]
    assert server.resolved == [(JOB, "ct_east")]


@pytest.mark.parametrize(
    ("name", "jobs", "token"),
    [("ct_east", [JOB], "a new token"), ("ct_east", [], "token_ct_east"), ("ct_west", [], "a new token")],
    ids=["it runs the job", "it did not start anew", "it takes no part"],
)
def test_other_heartbeats_are_left_to_nvflare(server, name, jobs, token):
    sync_client_jobs(server, heartbeat(name, *jobs), token)
    assert not server.reported and not server.resolved


def test_the_log_names_the_site_whose_process_ended_and_what_to_do(server):
    report = {JobFailureMsgKey.JOB_ID: JOB, JobFailureMsgKey.CODE: 104, JobFailureMsgKey.REASON: "/data/patient\x1b"}
    request = Request(report, **{CellMessageHeaderKeys.TOKEN: "token_ct_east"})
    assert process_job_failure(server, request) == "reply"
    said = server.log.read_text()
    assert "site 'ct_east': its process for this job ended (code 104)" in said and "/data" not in said
    assert f"fedmed study resume {JOB} NEW_JOB --job JOB" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("token", "payload"),
    [("nobody's", {"job_id": JOB, "code": 104}), ("token_ct_east", {"job_id": "other", "code": 104}), (None, "text")],
)
def test_reports_of_nobody_or_nothing_write_nothing(server, token, payload):
    if isinstance(payload, dict):
        payload = {JobFailureMsgKey.JOB_ID: payload["job_id"], JobFailureMsgKey.CODE: payload["code"]}
    assert process_job_failure(server, Request(payload, **{CellMessageHeaderKeys.TOKEN: token})) == "reply"
    assert not server.log.exists()


@pytest.mark.parametrize("why", ["aborted", "another site"])
def test_a_process_that_ends_with_its_job_is_not_blamed_for_it(server, monkeypatch, why):
    """NVFlare ends a busy process ten seconds after an abort, and its site then reports a failure."""
    monkeypatch.setattr(lost_processes, "LAST_WORD", 0.05)
    if why == "aborted":
        server.engine.job_runner.running_jobs[JOB].run_aborted = True
    else:
        server.engine.exception_run_processes[JOB] = {}
    report = {JobFailureMsgKey.JOB_ID: JOB, JobFailureMsgKey.CODE: 1}
    process_job_failure(server, Request(report, **{CellMessageHeaderKeys.TOKEN: "token_ct_east"}))
    wait_for_complete(server.engine, server.engine.args.workspace, JOB, SimpleNamespace(wait=lambda: None))
    assert not server.log.exists()


@pytest.mark.parametrize("finished", [True, False])
def test_a_server_process_without_a_last_word_is_named(server, monkeypatch, finished):
    monkeypatch.setattr(lost_processes, "LAST_WORD", 0.05)
    server.engine.run_processes[JOB][RunProcessKey.PROCESS_FINISHED] = finished
    wait_for_complete(server.engine, server.engine.args.workspace, JOB, SimpleNamespace(wait=lambda: None))
    assert server.log.exists() is not finished
    assert finished or "ended without its last word" in server.log.read_text()


def start_anew(server, root, *jobs, save):
    """Start a server whose earlier process left these jobs running: job -> the state that each gets."""
    states = {}
    manager = SimpleNamespace(
        get_jobs_by_status=lambda wanted, fl_ctx: [SimpleNamespace(job_id=job) for job in jobs],
        save_workspace=save,
        set_status=lambda job_id, status, fl_ctx: states.update({job_id: status}),
    )
    server.engine.run_processes.clear()
    server.engine.get_component = {"job_manager": manager}.get
    server.engine.get_workspace = lambda: SimpleNamespace(get_root_dir=lambda: str(root))
    LostProcesses.handle_event(
        LostProcesses.__new__(LostProcesses), EventType.SYSTEM_START, SimpleNamespace(get_engine=lambda: server.engine)
    )
    return states


def test_jobs_of_an_earlier_start_are_ended_with_the_line_that_resumes_them(server, tmp_path):
    saved = []

    def save(job_id, folders, fl_ctx):
        saved.append((job_id, folders))

    states = start_anew(server, tmp_path, JOB, "never_began", save=save)
    assert states == {JOB: RunStatus.FINISHED_ABORTED, "never_began": RunStatus.FINISHED_ABORTED}
    assert saved == [(JOB, [str(tmp_path / JOB)])] and (tmp_path / JOB).is_dir()
    said = server.log.read_text()
    assert "started anew while this job ran" in said and f"fedmed study resume {JOB}" in said


def test_a_job_whose_result_cannot_be_kept_is_ended_all_the_same(server, tmp_path):
    def full(*arguments):
        raise OSError("No space left on device")

    assert start_anew(server, tmp_path, JOB, save=full) == {JOB: RunStatus.FINISHED_ABORTED}


def test_a_process_of_a_job_that_outlived_the_server_is_ended_and_no_other(tmp_path):
    line = [sys.executable, "-c", "import time; time.sleep(3600)", lost_processes.JOB_PROCESS, "-m"]
    mine, other = (subprocess.Popen([*line, str(root), "-n", JOB]) for root in (tmp_path, tmp_path / "another_kit"))
    try:
        end_orphans(tmp_path, JOB)
        assert mine.poll() is not None and other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


def test_a_kit_puts_them_in_their_places(monkeypatch):
    for owner, name in (
        (FederatedServer, "_sync_client_jobs"),
        (FederatedServer, "process_job_failure"),
        (ServerEngine, "wait_for_complete"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    LostProcesses()
    assert FederatedServer._sync_client_jobs is sync_client_jobs
    assert FederatedServer.process_job_failure is process_job_failure
    assert ServerEngine.wait_for_complete is wait_for_complete
