"""Run a command whose processes end with the one that started it, however that ends: also when it is killed.

    python -m fedmed.recovery.ends_with_parent COMMAND …

Whoever starts this holds its standard input open. When that closes, since its process is gone, every process is killed
that has the mark ``MARK`` of its environment, wherever it stands in the tree: NVFlare starts each site in a session of
its own, and what loses its parent is nobody's child.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

import psutil

MARK = "FEDMED_SIMULATION"  # a text of its own for each simulation


def marked(mark: str) -> list[psutil.Process]:
    """Living processes with this mark, but for the asking one."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                processes.append(process)
    return processes


def end_marked(mark: str) -> None:
    """Kill all processes with this mark, those that are started meanwhile too, and wait until they are gone."""
    while alive := marked(mark):
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(alive, timeout=1)


def _end_with_input(mark: str, ending: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    ending.set()
    end_marked(mark)
    os._exit(1)


def main(command: Sequence[str]) -> int:
    """Run the command and return its exit code; 128 and the signal's number, as shells do, where one ended it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever stops the command ends its processes one by one, and then this
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_heed_signals)  # no thread runs yet
    ending = threading.Event()
    watcher = threading.Thread(target=_end_with_input, args=[os.environ[MARK], ending], daemon=True)
    watcher.start()
    code = child.wait()
    if ending.is_set():
        watcher.join()  # the command was killed first, and others may be left
    return code if code >= 0 else 128 - code


def _heed_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
