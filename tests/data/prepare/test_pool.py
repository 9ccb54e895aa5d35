"""A file that takes all memory, or crashes its reader, costs itself and no other."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import psutil
import pytest

from fedmed.data import read_limits as memory_share
from fedmed.data.prepare import pool
from fedmed.data.prepare.pool import DIED, read_apart, run_all
from fedmed.errors import DataError
from tests.data.prepare.dying_work import work


@pytest.fixture
def small_shares(monkeypatch):
    monkeypatch.setattr(pool, "share_of", lambda processes: 2**28 // processes)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_that_dies_costs_only_its_own_file(workers, small_shares):
    results = run_all(work, range(7), workers, apart=True, died="died at {}".format)
    assert results == [0, 2, 4, "died at 3", 8, "too large", 12]


def test_without_a_word_for_it_the_file_is_named(small_shares):
    with pytest.raises(DataError, match=f"^3: {DIED[:20]}"):
        run_all(work, range(6), 1, apart=True)


def test_errors_of_a_reader_are_raised_here():
    assert read_apart(int, "7") == 7
    with pytest.raises(ValueError, match="invalid literal"):
        read_apart(int, "seven")
    with pytest.raises(DataError, match=DIED[:20]):
        read_apart(partial(os._exit, 1))
    assert read_apart(int, "8") == 8


def test_a_reader_knows_its_share():
    assert read_apart(memory_share.allowed_bytes) <= memory_share.share_of(1) * 1.1


SCRIPT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it
from fedmed.commands.command_line import run_app
from fedmed.commands.options import command, group, stop_says
from fedmed.data.prepare.pool import read_apart, run_all
"""
READS_ALL = 'print(run_all(float, ["1", "2", "3"], 2), flush=True)'
WAITS = """
app = group("waits")
@command(app)
def prepare():
    with stop_says("prepare: interrupted; nothing was written"):
        run_all(time.sleep, [600, 600], 2)
sys.exit(run_app(app, "prepare", []))
"""
READS = "print('it reads', flush=True); __import__('time').sleep(600)"


def script(folder, *lines):
    """A user's script, which asks nowhere whether it is the one that was started."""
    path = folder / "script.py"
    path.write_text("\n".join([SCRIPT, *lines]))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, str(path)], env=env, text=True, start_new_session=True, **streams)


def test_a_script_without_a_guard_reads_too(tmp_path):
    assert script(tmp_path, READS_ALL).communicate() == ("[1.0, 2.0, 3.0]\n", "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_process_reads_on_when_the_one_that_asked_is_gone(tmp_path, number):
    with script(tmp_path, f"read_apart(exec, {READS!r})") as process:
        assert process.stdout.readline() == "it reads\n"
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(number)
        _, alive = psutil.wait_procs(family, timeout=30)
        for one in alive:
            one.kill()
    assert len(family) > 1 and not alive


def test_ctrl_c_while_processes_start_is_one_line(tmp_path):
    with script(tmp_path, WAITS) as process:
        family = []
        while process.poll() is None and not any("loky_posix" in str(one.cmdline()) for one in family):
            time.sleep(0.05)
            family = psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.2)  # a new process is in the middle of its imports
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
        _, alive = psutil.wait_procs(family, timeout=30)
        for one in (*alive, *([process] if alive else ())):
            one.kill()
        _, said = process.communicate()
    assert process.returncode == 130 and not alive
    assert said == "prepare: interrupted; nothing was written\n"
