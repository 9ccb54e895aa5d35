"""A command that is stopped ends, with all that works for it."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from fedmed.interrupts import endings_as_ctrl_c

# A worker that joblib no longer ends: its thread for that fails where results were given up a moment before.
COMMAND = """
import signal, sys, time
from joblib.externals.loky import ProcessPoolExecutor
from fedmed.commands.command_line import run_app
from fedmed.commands.options import command, group, stop_says
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

app = group("works")

@command(app)
def work():
    with stop_says("prepare: interrupted; nothing was written"):
        pool = ProcessPoolExecutor(1)
        pool.submit(int).result()
        pool.submit(time.sleep, 600)
        print("works", flush=True)
        time.sleep(600)

if __name__ == "__main__":
    sys.exit(run_app(app, "prepare", []))
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_preparation_ends_with_its_workers(ending, tmp_path):
    (tmp_path / "command.py").write_text(COMMAND)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    line = [sys.executable, str(tmp_path / "command.py")]
    with subprocess.Popen(line, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == "works\n"
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(ending)
        _, alive = psutil.wait_procs(family, timeout=30)
        for one in alive:
            one.kill()
        said = process.stderr.read()
    assert len(family) > 1 and not alive
    assert "prepare: interrupted; nothing was written" in said


def test_nohup_stays_and_all_is_as_before_afterwards():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    term = signal.getsignal(signal.SIGTERM)
    try:
        with endings_as_ctrl_c():
            signal.raise_signal(signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN and signal.getsignal(signal.SIGTERM) == term
    finally:
        signal.signal(signal.SIGHUP, before)
