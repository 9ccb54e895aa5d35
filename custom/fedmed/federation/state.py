"""Files that must be whole or absent: a site's private state, models, and JSON lines."""

import json
import pickle
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from fedmed.errors import StateError
from fedmed.files import write_atomically


def _save(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write durably.

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
    _save(path, lambda stream: torch.save(dict(content), stream))


def load_tensors(path: Path) -> dict[str, Any]:
    """Load what :func:`save_tensors` wrote; nothing in the file is executed.

    Raises:
        StateError: no such file, or a damaged one.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise StateError(f"{path} does not exist") from error
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise StateError(f"{path} is damaged ({error}); restore it from a backup, or start again without it") from error


def save_json(path: Path, content: Any) -> None:
    """Save plain values as readable JSON, atomically."""
    _save(path, lambda stream: stream.write(json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"))


def append_json(path: Path, content: Mapping[str, Any]) -> None:
    """Add one JSON line; a line is written in one call, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(content, allow_nan=False) + "\n")


class SiteState:
    """What a site keeps to itself between rounds, one file a round: ``state/round_<r>.pt``.

    Args:
        folder: the job's folder at this site.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "state"

    def _path(self, round: int) -> Path:
        return self.folder / f"round_{round}.pt"

    def load(self, round: int | None) -> dict[str, Any]:
        """Return the state written in ``round``; ``{}`` for None (a site's first round).

        Raises:
            StateError: the round's file is missing or damaged.
        """
        if round is None:
            return {}
        try:
            return load_tensors(self._path(round))
        except StateError as error:
            raise StateError(
                f"the site's private state of round {round} cannot be read: {error}. If the job was restarted, "
                "name the old job's folder; without that state the site cannot continue"
            ) from error

    def save(self, round: int, private: Mapping[str, Tensor], **content: Any) -> None:
        """Write the state of ``round``, then it is safe to answer the server."""
        save_tensors(self._path(round), {"round": round, "private": dict(private), **content})

    def prune(self, keep: Collection[int]) -> None:
        """Delete the files of all rounds not in ``keep``."""
        names = {self._path(round).name for round in keep}
        for path in self.folder.glob("round_*.pt"):
            if path.name not in names:
                path.unlink()
