"""A server in wrong hands, on real kits: it gets nothing of a site by jobs that have run, false ids or commands."""

import json
import os
import shutil
import time
import uuid
from pathlib import Path

import pytest
from nvflare.private.defs import RequestHeader, SysCommandTopic, TrainingTopic

SITE = "ct_north"
TESTS = Path(__file__).resolve().parents[1]
PART = {"id": "hostile", "path": "hostile_server.HostileServer", "args": {}}
CLOSED = "this site takes no commands"


@pytest.fixture(scope="module")
def hostile(new_federation):
    """A running federation of one site and a server that sends whatever a test asks for."""
    federation = new_federation({SITE: "supervised"})
    path = federation.kit("server") / "local" / "resources.json.default"
    resources = json.loads(path.read_text())
    resources["components"].append(PART)
    resources["class_allow_list"].append(PART["path"])
    path.write_text(json.dumps(resources))
    usual, result = federation.environment, os.environ.get("PYTHONPATH")
    federation.environment = lambda name: {
        **usual(name),
        **({"PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), result]))} if name == "server" else {}),
    }
    federation.start_all()
    yield federation
    federation.close()


def ask(federation, topic: str, job_id: str = "", **order) -> str:
    """What the site answers to a command of the server's."""
    kit = federation.kit("server")
    headers = {RequestHeader.JOB_ID: job_id, **order.pop("headers", {})}
    new = kit / "order.new"
    new.write_text(json.dumps({"site": SITE, "topic": topic, "headers": headers, **order}))
    new.rename(kit / "order.json")
    deadline = time.monotonic() + 120
    while not (kit / "answer.json").exists():
        assert time.monotonic() < deadline, federation.said("server", SITE)
        time.sleep(0.1)
    answer = json.loads((kit / "answer.json").read_text())
    (kit / "answer.json").unlink()
    return answer


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_server_in_wrong_hands_gets_nothing_by_jobs_that_have_run(hostile, write_tiny_job, tmp_path):
    job = write_tiny_job(tmp_path, "honest", sites={SITE: "supervised"}, custom=False, evaluate=False, steps=1)
    job_id = hostile.submit(job)
    meta = hostile.finish(job_id)
    assert meta["status"] == "FINISHED:COMPLETED", (meta, hostile.said("server", SITE))
    kit, app = hostile.kit(SITE), job / "app_supervised"  # signed where it lies, when it was submitted
    kept = contents(kit / "local") | contents(kit / "startup") | contents(kit / job_id)

    def deploy(new_id: str, **changes) -> str:
        described = {**meta, "job_id": new_id, **changes}
        headers = {RequestHeader.JOB_META: described, RequestHeader.APP_NAME: app.name}
        return ask(hostile, TrainingTopic.DEPLOY, new_id, app=str(app), headers=headers)

    new_id = str(uuid.uuid4())
    assert deploy(new_id) == "RUN_BEFORE" and not (kit / new_id).exists()
    assert deploy(new_id, name="other", min_clients=1) == "DESCRIPTION_WRONG"
    assert deploy("local") == deploy("startup") == deploy(job_id) == "JOB_ID_WRONG"
    started = {RequestHeader.JOB_META: meta}
    assert ask(hostile, TrainingTopic.START_JOB, job_id, headers=started, body={}) == "RUN_BEFORE"
    for wrong in ("local", job_id):
        assert ask(hostile, TrainingTopic.DELETE_RUN, wrong).startswith(CLOSED)
    for topic in (SysCommandTopic.CONFIGURE_SITE_LOG, TrainingTopic.CONFIGURE_JOB_LOG):
        assert ask(hostile, topic, body="DEBUG").startswith(CLOSED)
    assert contents(kit / "local") | contents(kit / "startup") | contents(kit / job_id) == kept

    again = hostile.finish(hostile.submit(job))
    assert again["status"] == "FINISHED:COMPLETED", "the lead may submit the same folder again"
    shutil.rmtree(kit / job_id)  # as a hospital may do with what it does not need any more
    assert deploy(job_id) == "RUN_BEFORE"
