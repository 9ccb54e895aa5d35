"""Folders that only the server that runs in them may change; one that was killed leaves its own free."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from fedmed.errors import DataError

LOCK = ".held"


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Lock an existing folder while the block runs; however the process ends, the lock ends with it.

    Raises:
        DataError: another process has locked it.
        OSError: the folder cannot be written.
    """
    with os.fdopen(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)) as file:
        if not _lock(file.fileno()):
            raise DataError(in_use_message(folder))
        yield


def in_use(folder: Path) -> bool:
    """Whether a process has locked a folder, which need not exist."""
    try:
        with (folder / LOCK).open("r+") as file:
            return not _lock(file.fileno())
    except (FileNotFoundError, NotADirectoryError):
        return False


def in_use_message(folder: Path) -> str:
    """What to tell a user about a folder that is locked."""
    return (
        f"another label server serves {folder}; end that one first (one server can serve several bundles), or name "
        "another folder with --work"
    )


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network drives know no locks; then nothing tells two servers apart
        return True
    return True
