"""NVFlare's own preflight check against a provisioned server."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nvflare.lighter.prov_utils import prepare_builders
from nvflare.lighter.provision import prepare_project
from nvflare.lighter.provisioner import Provisioner

from fedmed.checks import site_check as preflight_module
from fedmed.checks.machine import Connection, tls_connect
from fedmed.checks.site_check import parse, preflight
from fedmed.checks.startup_kit import check_kit, read_kit

PASSED = "| Check server available | PASSED | N/A |\n"


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    """Folder of startup kits whose server is running."""
    folder = tmp_path_factory.mktemp("federation")
    builders = ["workspace.WorkspaceBuilder", "static_file.StaticFileBuilder", "cert.CertBuilder"]
    builders = [{"path": f"nvflare.lighter.impl.{name}"} for name in builders]
    builders[1]["args"] = {"config_folder": "config", "scheme": "grpc"}
    server = {"name": "localhost", "type": "server", "org": "lead", "fed_learn_port": free_port()}
    people = [{"name": "a@lead.org", "type": "admin", "org": "lead", "role": "project_admin"}]
    sites = [server, {"name": "hospital_k", "type": "client", "org": "k"}, *people]
    project = {"api_version": 3, "name": "study", "participants": sites, "builders": builders}
    Provisioner(str(folder / "workspace"), prepare_builders(project)).provision(prepare_project(project))
    environment = {**os.environ, "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    made = folder / "workspace" / "study" / "prod_00"
    _private_stores(made / "localhost")
    line = [sys.executable, "-m", "nvflare.private.fed.app.server.server_train", "-m", str(made / "localhost")]
    line += ["-s", "fed_server.json", "--set", "secure_train=true", "org=lead", "config_folder=config"]
    with (folder / "server.log").open("wb") as log:
        running = subprocess.Popen(line, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait(server["fed_learn_port"], running)
        yield made
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def _private_stores(kit: Path) -> None:
    """NVFlare's own places for jobs and snapshots are shared by all users of a machine."""
    text = (kit / "local" / "resources.json.default").read_text()
    for shared in ("/tmp/nvflare/snapshot-storage", "/tmp/nvflare/jobs-storage"):
        assert shared in text
        text = text.replace(shared, str(kit / Path(shared).name))
    (kit / "local" / "resources.json").write_text(text)


def _wait(port: int, running: subprocess.Popen) -> None:
    for _ in range(6000):
        assert running.poll() is None, "the server ended"
        try:
            socket.create_connection(("localhost", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail("the server does not listen")


def test_a_site_reaches_the_server_and_registers(kits):
    kit, connection = read_kit(kits / "hospital_k"), Connection()
    before = sorted(kit.folder.rglob("*"))
    assert tls_connect(kit, connection) is None and preflight(kit, connection) is None
    assert connection.tls and connection.preflight and connection.registered
    assert sorted(kit.folder.rglob("*")) == before  # its log stays out of the kit
    # NVFlare's default kit streams logs, evaluates configurations and has no limits; that is what a site is told.
    kinds = [finding.kind for finding in check_kit(kit, "hospital_k")]
    assert kinds == ["logs", "jobs", "limits", "messages", "wide_list"]


def test_nvflares_table_is_read():
    assert parse('{"data": {"overall": "pass"}}', PASSED) == (True, [])
    broken = (
        f"| Checks | Problems | How to fix |\n|---|\n{PASSED}| Check dry run | Can't start it: one | Please check. |\n"
    )
    broken += "|               |  and two          |               |\n"
    passed, rows = parse('noise\n{"data": {"overall": "fail"}}\n', broken)
    assert not passed and rows == [("Check dry run", "Can't start it: oneand two", "Please check.")]
    assert parse("", "Traceback\nOSError: x") == (False, [("nvflare", "OSError: x", "")])


def test_the_preflight_runs_on_a_view_of_the_kit(make_kit, monkeypatch):
    kit, seen = read_kit(make_kit()), {}

    def run(view):
        assert (view / "startup" / "client.key").is_symlink()
        seen.setdefault("times", []).append(view)
        (view / "log.txt").write_text("x - INFO - Successfully registered client:hospital_k for project study.")
        ended = [("Check dry run", "Can't start successfully:", "")]
        return (True, []) if len(seen["times"]) == 2 else (False, ended)

    monkeypatch.setattr(preflight_module, "_run", run)
    connection = Connection()
    assert preflight(kit, connection) is None and connection.preflight and connection.registered
    assert not seen["times"][0].exists() and not (kit.folder / "log.txt").exists()
    monkeypatch.setattr(preflight_module, "_run", lambda *args: (False, [("Check server available", "no", "start it")]))
    assert "no (start it)" in preflight(kit, connection).text and connection.preflight is False


def test_a_running_site_is_left_alone(make_kit, monkeypatch):
    kit = read_kit(make_kit())
    (kit.folder / "pid.fl").write_text(f"{os.getpid()}\n")
    monkeypatch.setattr(preflight_module, "_run", lambda *args: pytest.fail("started"))
    connection = Connection()
    assert preflight(kit, connection).kind == "running" and connection.preflight is None
    (kit.folder / "pid.fl").unlink()  # as of one in a container, which is started with --once
    line = [sys.executable, "-c", "input()", preflight_module.SITE_MODULE, "-m"]
    for folder, known in ((kit.folder / "other", False), (kit.folder, True)):
        with subprocess.Popen([*line, str(folder), "-s", "fed_client.json"], stdin=subprocess.PIPE) as process:
            assert preflight_module.running(kit) == (process.pid if known else None)
            process.communicate(b"\n")
