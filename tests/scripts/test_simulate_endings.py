"""However fedmed simulate ends, all that it has started ends with it."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from fedmed.commands import command_line
from tests.commands import fedmed
from tests.scripts.while_it_runs import not_heeded, while_it_runs

# A site in a session of its own, as NVFlare starts each: the signal to the simulator's group would leave it running.
AT_WORK = (
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
    "(w.parent / 'pid.tmp').write_text(str(child.pid)); (w.parent / 'pid.tmp').rename(w.parent / 'pid')\n"
    "time.sleep(600)"
)

# ``fedmed`` with the Python, beside which the stand-in lies, that is the first of its words.
LAUNCHER = (
    "import sys, runpy; sys.executable, *sys.argv[1:] = sys.argv[1:]; runpy.run_module('fedmed', run_name='__main__')"
)


@pytest.fixture(scope="module")
def script():
    return fedmed("simulate")


def until(what, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not what() and time.monotonic() < deadline:
        time.sleep(0.05)
    return what()


def site_of(folder):
    """The process of the site, once there is one."""
    assert until((folder / "pid").exists, seconds=600)
    return psutil.Process(int((folder / "pid").read_text()))


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def simulated(script, job, stand_in, tmp_path, monkeypatch):
    """Return a function: runs a simulation in this process, and does something when its site is at work.

    It returns the exit code and the site's process.
    """
    monkeypatch.setattr(command_line, "end_workers", lambda: None)  # of other tests of this process

    def simulated(act):
        stand_in(AT_WORK)
        line, sites = [str(job), "--workspace", str(tmp_path / "ws")], []

        def note_and_act():
            sites.append(site_of(tmp_path))
            act()

        code = while_it_runs(lambda: script(line), (tmp_path / "pid").exists, note_and_act)
        return code, *sites

    return simulated


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_ends_every_process_and_says_where_things_are(simulated, tmp_path, capsys, number):
    # A shell starts jobs in the background with SIGINT ignored, nohup with SIGHUP; a terminal does not.
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else not_heeded)
    try:
        code, site = simulated(lambda: os.kill(os.getpid(), number))
    finally:
        signal.signal(number, before)
    assert code == 130 and f"what was done so far is in {tmp_path / 'ws'}" in capsys.readouterr().err
    assert gone(site)


def test_all_ends_with_the_process_before_the_simulator(simulated, tmp_path):
    def kill_it():
        (between,) = [child for child in psutil.Process().children() if str(tmp_path / "ws") in child.cmdline()]
        between.kill()

    code, site = simulated(kill_it)
    assert code == 1 and until(lambda: gone(site))


def test_a_workspace_at_work_is_refused_until_its_process_is_killed_with_its_group(
    script, job, stand_in, tmp_path, capsys
):
    """The refusal names the owner's process; when that is killed, all that it started ends."""
    stand_in(AT_WORK)
    line = [os.path.join(sys.prefix, "bin", "python"), "-c", LAUNCHER, sys.executable, "simulate", str(job)]
    process = subprocess.Popen([*line, "--workspace", str(tmp_path / "ws")], start_new_session=True)
    try:
        site = site_of(tmp_path)
        before = (tmp_path / "ws.log").stat()
        for options in ([], ["--resume"]):
            assert script([str(job), "--workspace", str(tmp_path / "ws"), *options]) == 2
            error = capsys.readouterr().err
            assert f"is in use by process {process.pid}; wait for its end, stop it, or choose another" in error
        assert not gone(site) and (tmp_path / "ws.log").stat().st_ino == before.st_ino
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert until(lambda: gone(site))
    stand_in("print('ready')")
    until(lambda: script([str(job), "--workspace", str(tmp_path / "ws"), "--quiet"]) == 1)
    assert "ready" in (tmp_path / "ws.log").read_text(), "nobody owns the workspace of a dead process"
