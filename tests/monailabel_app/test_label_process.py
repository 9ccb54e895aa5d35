"""The server's process, with programs that stand for MONAI Label."""

import contextlib
import http.server
import os
import signal
import threading
import time

import psutil
import pytest
import serve
from fedmed_label import process
from fedmed_label.bundles import read_bundle
from fedmed_label.door import Rules
from fedmed_label.instance import YOUNG, environment, instance, remove_leftovers

from fedmed.bundles.digests import whole_digest
from fedmed.errors import FedMedError
from tests.e2e.conftest import free_port

STUBBORN = """#!/usr/bin/env bash
trap '' TERM
sleep 1000 &
echo started
wait
"""


@pytest.fixture
def start(make_bundle, tmp_path, monkeypatch):
    """Return a function: text of a program -> the Server that runs it in place of Python."""
    stack = contextlib.ExitStack()

    def run(program):
        path = tmp_path / "program"
        path.write_text(program)
        path.chmod(0o755)
        monkeypatch.setattr(process.sys, "executable", str(path))
        bundles = [read_bundle(make_bundle())]
        folder = stack.enter_context(instance(bundles, stock=False))
        server = process.Server(folder, bundles, "/studies", ("127.0.0.1", 1), environment(folder, Rules(), ""))
        stack.callback(server.stop)
        return server

    with stack:
        yield run


def test_a_reason_in_plain_words_is_passed_on(start):
    with pytest.raises(FedMedError, match="^the weights are wrong$"):
        start("#!/bin/sh\necho log; echo 'error: the weights are wrong'; exit 2\n").wait_until_ready()


def test_without_one_the_end_of_the_log_is_shown(start):
    with pytest.raises(FedMedError, match="exit code 3; the end of its log:\nline one\nline two"):
        start("#!/bin/sh\necho line one; echo line two; exit 3\n").wait_until_ready()


def test_a_server_that_does_not_start_in_time(start, monkeypatch):
    monkeypatch.setattr(process, "START_SECONDS", 0.3)
    with pytest.raises(FedMedError, match="did not start within"):
        start("#!/bin/sh\nsleep 1000\n").wait_until_ready()


def test_what_does_not_end_when_asked_is_ended(start, monkeypatch):
    monkeypatch.setattr(process, "KILL_GRACE", 0.5)
    server = start(STUBBORN)
    deadline = time.monotonic() + 600
    while "started" not in server.log.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    family = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)]
    assert len(family) == 2
    server.stop()
    assert not psutil.wait_procs(family, timeout=600)[1]


def test_a_launcher_that_is_interrupted_ends_all_that_it_started_and_leaves_the_studies_alone(
    make_bundle, tmp_path, fedmed_home, monkeypatch
):
    (program := tmp_path / "program").write_text("#!/usr/bin/env bash\nsleep 1000 &\necho started\nwait\n")
    program.chmod(0o755)
    monkeypatch.setattr(process.sys, "executable", str(program))
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "one.png").write_bytes(b"a picture")
    bundle = make_bundle()
    words = [str(tmp_path / "studies"), str(bundle), "--trust", whole_digest(bundle), "--port", str(free_port())]
    launcher = os.fork()  # a process of its own, which signals reach
    if not launcher:
        code = 1
        try:
            code = serve.main([*words, "--work", str(tmp_path / "work")])
        finally:
            os._exit(code)  # whatever happens, no second process goes on with the tests
    deadline = time.monotonic() + 600
    while not (logs := [log for log in fedmed_home.glob("label/server-*/server.log") if "started" in log.read_text()]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    started = psutil.Process(launcher).children(recursive=True)
    os.kill(launcher, signal.SIGINT)
    assert os.waitstatus_to_exitcode(os.waitpid(launcher, 0)[1]) == 0
    assert len(started) == 2 and not psutil.wait_procs(started, timeout=600)[1]
    assert not logs[0].parent.exists()
    assert [path.read_bytes() for path in (tmp_path / "studies").iterdir()] == [b"a picture"]


def test_the_server_has_its_own_folders_and_no_others_settings(start, fedmed_home):
    server = start(
        '#!/bin/sh\necho $TMPDIR $MONAI_LABEL_SESSION_PATH $FEDMED_LABEL_HOSTS "[$CUDA_VISIBLE_DEVICES]" $PWD\n'
    )
    server.process.wait(600)
    folder = server.log.parent
    assert folder.parent == fedmed_home / "label" and folder.stat().st_mode & 0o777 == 0o700
    hosts = "127.0.0.1,::1,localhost"
    assert server.log.read_text().split() == [f"{folder}/tmp", f"{folder}/sessions", hosts, "[]", str(folder)]


def test_it_starts_without_a_network_and_with_its_own_python(start):
    """MONAI Label's default source of models is asked at start-up; its own program runs any `python` of the PATH."""
    server = start('#!/bin/sh\necho "$@"; echo "$PATH"\n')
    server.process.wait(600)
    arguments, path = server.log.read_text().splitlines()
    assert arguments.startswith("-m fedmed_label.server") and "--conf zoo_source ngc" in arguments
    assert path.startswith(f"{os.path.dirname(process.sys.executable)}:")


def test_a_killed_server_s_folder_is_removed_by_the_next_one_and_a_running_one_s_is_not(make_bundle, fedmed_home):
    home = fedmed_home / "label"
    with instance([read_bundle(make_bundle())], stock=False) as running:
        (left := home / "server-killed").mkdir()
        (left / "image.nii.gz").write_text("of a patient")
        (fresh := home / "server-young").mkdir()
        for folder in (running, left):
            os.utime(folder, (0, time.time() - 2 * YOUNG))
        remove_leftovers(home)
        assert running.is_dir() and fresh.is_dir() and not left.exists()
    assert not running.exists()
    fresh.rmdir()


def test_another_server_on_the_port_is_not_taken_for_this_one(start, monkeypatch):
    """It may have come between the check of the port and the start."""

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'"server-other"')

        def log_message(self, *_):
            pass

    monkeypatch.setattr(process, "START_SECONDS", 0.5)
    server = start("#!/bin/sh\nsleep 1000\n")
    with http.server.HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        server.address = other.server_address
        with pytest.raises(FedMedError, match="did not start"):
            server.wait_until_ready()
        server.name = "server-other"
        server.wait_until_ready()
        other.shutdown()
