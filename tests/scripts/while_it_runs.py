"""Something that happens to a command while it runs in this process."""

import threading
from collections.abc import Callable

import pytest


def while_it_runs(run: Callable[[], int], ready: Callable[[], object], act: Callable[[], object]) -> int:
    """Run a command in this thread, and act from another one as soon as it is ready; return its exit code.

    Where the command ends before it is ready, nothing is done.
    """
    ended = threading.Event()

    def wait_and_act() -> None:
        while not ready():
            if ended.wait(0.05):
                return
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    try:
        return run()
    finally:
        ended.set()
        thread.join()


def not_heeded(number: int, _: object) -> None:
    """Handle a signal that the command should have handled itself."""
    pytest.fail(f"the command does not heed signal {number}")
