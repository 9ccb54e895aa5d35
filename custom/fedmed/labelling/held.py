"""Folders that a running server holds: nobody else changes them, and those of servers that were killed are told."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from fedmed.errors import DataError

HELD = ".held"


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold an existing folder while the block runs; however the process ends, it lets go.

    Raises:
        DataError: another process holds it.
        OSError: the folder cannot be written.
    """
    handle = os.open(folder / HELD, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _lock(handle):
            raise DataError(in_use(folder))
        yield
    finally:
        os.close(handle)


def is_held(folder: Path) -> bool:
    """Whether a process holds a folder, which need not exist."""
    try:
        handle = os.open(folder / HELD, os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not _lock(handle)
    finally:
        os.close(handle)


def in_use(folder: Path) -> str:
    """What to tell a user about a folder that is held."""
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
