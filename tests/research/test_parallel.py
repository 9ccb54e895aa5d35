"""Processes: results as they come, failures told apart, nobody left behind."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedmed.errors import JobError
from research.runner.parallel import Failure, in_processes

CHECKOUT = Path(__file__).resolve().parents[2]
PARENT = """
import signal, sys, time
from fedmed.errors import JobError
from research.runner.parallel import in_processes
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    try:
        for item, _ in in_processes([0.0] + [3600.0] * 3, 2, time.sleep):
            print(item, flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
"""


def leave(item):
    if item >= 1:
        os._exit(item)
    return item


def test_a_failing_item_stops_no_other():
    roots = dict(in_processes([4.0, -1.0, 9.0], 2, math.sqrt))
    assert (roots[4.0], roots[9.0]) == (2.0, 3.0)
    assert isinstance(roots[-1.0], Failure) and "ValueError: math domain error" in roots[-1.0].reason


def test_a_process_that_dies_is_a_failure_of_its_own_item():
    results = dict(in_processes([0.0, 7, 0.1, 9, 0.2], 2, leave))
    assert [type(results[item]) for item in (7, 9)] == [Failure, Failure] and "use fewer --jobs" in results[7].reason
    assert [results[item] for item in (0.0, 0.1, 0.2)] == [0.0, 0.1, 0.2]


def test_leaving_the_loop_ends_the_processes():
    started = time.monotonic()
    for item, _ in in_processes([0.0, 3600.0, 3600.0], 2, time.sleep):
        assert item == 0.0
        break
    assert time.monotonic() - started < 3000, "it waited for the others"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda sent: sent.name)
def test_no_process_outlives_its_parent(tmp_path, sent):
    (tmp_path / "parent.py").write_text(PARENT)
    command = [sys.executable, tmp_path / "parent.py"]
    paths = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    alone = {"start_new_session": True, "env": {**os.environ, "PYTHONPATH": paths}}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **alone) as parent:
        assert parent.stdout.readline() == "0.0\n"  # the first item is done: all processes have begun
        assert len(_members(parent.pid)) >= 4  # parent, resource tracker, and those at work
        os.kill(parent.pid, sent)
        assert parent.wait(600) == (130 if sent is signal.SIGINT else -sent)
    end = time.monotonic() + 600
    while _members(parent.pid):
        assert time.monotonic() < end, "they live on"
        time.sleep(0.05)


def test_without_dask_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(JobError, match=r"--dask needs Dask.*fedmed\[cluster\]"):
        list(in_processes([1.0], 1, math.sqrt, dask="tcp://127.0.0.1:1"))


def _members(session):
    done = subprocess.run(["pgrep", "-s", str(session)], capture_output=True, text=True, check=False)
    return done.stdout.split()
