"""Workspaces of simulations: each belongs to one at a time, and NVFlare may delete it."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmed.errors import JobError

NVFLARE_ENTRIES = {"server", "startup", "local"}  # what NVFlare itself leaves when a job fails before it begins


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
                f"{workspace} is in use by process {owner}; wait for its end, stop it, or choose another workspace"
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield lock
        path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def check_workspace(workspace: Path, job: Path) -> None:
    """Refuse a workspace that NVFlare, which deletes the folder at every start, must not delete."""
    if " " in str(workspace):
        raise JobError(
            f"the workspace {workspace} has a space in its path, which NVFlare's simulator cannot handle; "
            "choose another, such as --workspace /tmp/run"
        )
    if job.is_relative_to(workspace) or Path.cwd().is_relative_to(workspace):
        raise JobError(
            f"the workspace {workspace} holds the job or the current folder and would be deleted; choose another"
        )
    if not workspace.exists():
        return
    if not workspace.is_dir():
        raise JobError(f"the workspace {workspace} is a file; choose another")
    from fedmed.recovery.interrupted_workspace import RUN

    entries = {entry.name for entry in workspace.iterdir()}
    earlier_run = (workspace / "server" / RUN).is_dir()
    if entries and not earlier_run and not ("server" in entries and entries <= NVFLARE_ENTRIES):
        raise JobError(
            f"the workspace {workspace} is not empty and not an earlier run (server/{RUN} is missing); "
            "NVFlare would delete it; choose another"
        )


def keep_finished(workspace: Path) -> Path | None:
    """Move a finished run aside, which the next one would delete, to ``WORKSPACE.previous``; the one there goes.

    Returns:
        Where it lies now; None where the workspace holds no finished run.

    Raises:
        JobError: something else than a finished run lies there.
    """
    from fedmed.recovery.checkpoint import RESULT
    from fedmed.recovery.interrupted_workspace import records

    kept = workspace.with_name(f"{workspace.name}.previous")
    if not (records(workspace) / RESULT).is_file():
        return None
    if kept.exists() and not (records(kept) / RESULT).is_file():
        raise JobError(
            f"{workspace} holds a finished run, which would be moved to {kept}, but something else lies there; "
            "choose another workspace"
        )
    shutil.rmtree(kept, ignore_errors=True)
    workspace.rename(kept)
    if (log := workspace.with_name(f"{workspace.name}.log")).is_file():
        log.replace(workspace.with_name(f"{kept.name}.log"))
    return kept
