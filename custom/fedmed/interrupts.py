"""End of a command before its work is done: by Ctrl-C, a closed terminal or a scheduler."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def endings_as_ctrl_c() -> Iterator[None]:
    """Meanwhile a scheduler's kill (SIGTERM) and a closed terminal (SIGHUP) raise KeyboardInterrupt, as Ctrl-C does.

    So a command tidies up: no prepared cases, half-written lists or processes are left. A SIGHUP that ``nohup`` has
    switched off stays so. In the main thread only; also as a decorator.
    """
    endings = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) != signal.SIG_IGN]
    before = {ending: signal.signal(ending, signal.default_int_handler) for ending in endings}
    try:
        yield
    finally:
        for ending, handler in before.items():
            signal.signal(ending, handler)


def end_workers() -> None:
    """Kill the processes that work for this one, of which nobody awaits a result any more.

    joblib would end them too, but its thread that does so fails where a result was given up a moment before, and
    Python then waits for them for ever.
    """
    import multiprocessing

    for pid in [worker.pid for worker in multiprocessing.active_children() if worker.pid]:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGKILL)  # joblib's processes have no kill()
