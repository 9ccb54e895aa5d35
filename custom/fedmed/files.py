"""Where FedMed keeps its own files, and how they are written: whole or not at all."""

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from fedmed.errors import FedMedError


def fedmed_home() -> Path:
    """Where demo data and caches lie: ``$FEDMED_HOME`` or ``~/.cache/fedmed``."""
    return Path(os.environ.get("FEDMED_HOME") or "~/.cache/fedmed").expanduser()


def read_json(path: Path, error: type[FedMedError], remedy: str) -> dict[str, Any]:
    """Read a JSON file that holds named values.

    Raises:
        FedMedError: of the type ``error``: not readable, or something else; it names the file and ends with ``remedy``.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise error(f"{path}: not a readable JSON file ({problem}); {remedy}") from problem
    if not isinstance(content, dict):
        raise error(f"{path}: holds a {type(content).__name__} instead of named values; {remedy}")
    return content


def write_atomically(path: Path, write: Callable[[BinaryIO], object], durable: bool = False) -> None:
    """Write a file so that a reader, a second writer or a crash never meets half of it.

    Args:
        path: the file; its folder is made if necessary.
        write: called with the open temporary file, ``<stem>.<random>.tmp`` beside ``path``.
        durable: wait until the content is on the disk.

    Raises:
        OSError: the disk is full or the folder cannot be written; an older file stays, nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(temporary, path)
    except RuntimeError as error:  # what torch.save makes of a full disk
        Path(temporary).unlink(missing_ok=True)
        raise OSError(errno.ENOSPC, f"cannot be written: {error}") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
