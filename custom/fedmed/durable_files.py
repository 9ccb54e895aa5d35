"""Files that must be whole or absent: models, states, and JSON lines."""

import json
import os
import pickle
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from fedmed.errors import StateError
from fedmed.files import write_atomically


def save_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file durably, whole or not at all.

    Raises:
        StateError: the disk is full or the folder cannot be written; an older file stays as it was.
    """
    try:
        write_atomically(path, write, durable=True)
    except OSError as error:
        raise StateError(
            f"cannot write {path}: {error}. Free space or correct its permissions; nothing was changed"
        ) from error


def save_tensors(path: Path, content: Mapping[str, Any]) -> None:
    """Save tensors and plain values with ``torch.save``, atomically."""
    save_file(path, lambda stream: torch.save(dict(content), stream))


def load_tensors(path: Path) -> dict[str, Any]:
    """Load what :func:`save_tensors` wrote; nothing in the file is executed.

    Raises:
        StateError: no such file, or a damaged one.
    """
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return content
    except FileNotFoundError as error:
        raise StateError(f"{path} does not exist") from error
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise StateError(f"{path} is damaged ({error}); restore it from a backup, or start again without it") from error


def save_json(path: Path, content: Any) -> None:
    """Save plain values as readable JSON, atomically."""
    save_file(path, lambda stream: stream.write(json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"))


def save_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Save plain values as JSON lines, atomically."""
    text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
    save_file(path, lambda stream: stream.write(text.encode()))


def link(source: Path, path: Path) -> bool:
    """Give a complete file a second name, which takes no time and no space; False where that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, path)
    except OSError:
        return False
    return True


def append_json(path: Path, content: Mapping[str, Any], durable: bool = False) -> None:
    """Add one JSON line; a line is written in one call, so that a reader never sees half of it.

    Args:
        durable: wait until the line is on the disk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(content, allow_nan=False) + "\n")
        if durable:
            stream.flush()
            os.fsync(stream.fileno())
