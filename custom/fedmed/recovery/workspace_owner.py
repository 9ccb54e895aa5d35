"""A workspace belongs to one simulation at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmed.errors import JobError


@contextmanager
def owned(workspace: Path) -> Iterator[int]:
    """Own a workspace, and yield the descriptor of its lock: a process that inherits it owns the workspace too.

    The lock is a file beside the workspace, ``WORKSPACE.lock``, which holds the owner's process id. The system lets it
    go when the last process that owns it is gone, however it ended, so a file that is left over does not matter.

    Raises:
        JobError: another process owns it.
    """
    path = workspace.with_name(f"{workspace.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(lock, 32, 0).decode(errors="replace").strip() or "?"
            raise JobError(
                f"{workspace} is in use by process {owner}; wait for its end, stop it, or choose another --workspace"
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield lock
        path.unlink(missing_ok=True)
    finally:
        os.close(lock)
