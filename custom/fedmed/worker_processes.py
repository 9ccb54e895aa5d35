"""Processes beside one another on one machine, and how many of its cores each takes."""

import os
import signal
import threading
import time

WATCH = 0.5  # seconds between two looks at whether the parent is there
WAIT_POLICY = "OMP_WAIT_POLICY"  # of OpenMP, which PyTorch computes with on CPUs


def end_with_parent(parent: int) -> None:
    """End this process when its parent (a process id) is gone; else it would go on until its work is done, and longer.

    Called once, by the process itself. Ctrl-C is left to the parent, which it reaches too.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


def share_cores() -> None:
    """Let threads that wait for others give their core away, in all processes that this one starts.

    By default they keep it for a while and look again and again. Two trainings of two threads each, on two cores with
    other work, then took 170 seconds for what takes 3. What a user has set stays.
    """
    os.environ.setdefault(WAIT_POLICY, "PASSIVE")
