"""What a process that works for another one does first."""

import os
import signal
import threading
import time

WATCH = 0.5  # seconds between two looks at whether the parent is there


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
