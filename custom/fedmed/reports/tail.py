"""Follow files that another process appends to."""

import json
from pathlib import Path
from typing import Any

Identity = tuple[int, int]


def identity(path: Path) -> Identity | None:
    """What tells a file from its successor of the same name; None for no file."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns


class Tail:
    """Reads the complete new lines of a JSON-lines file that another process appends to.

    A file that was there before the run and has not changed belongs to an earlier run: it is not read.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._before, self._offset = path, identity(path), 0

    def poll(self) -> list[dict[str, Any]]:
        if self._before is not None and identity(self.path) == self._before:
            return []
        self._before = None
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except OSError:
            return []
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        return [line for text in complete.splitlines() if isinstance(line := _parsed(text), dict)]


class Arrival:
    """A JSON file that another process writes once, whole; one that was there before belongs to an earlier run."""

    def __init__(self, path: Path) -> None:
        self.path, self._before, self._read = path, identity(path), False

    def poll(self) -> dict[str, Any] | None:
        """The file's object, the first time that it is there; otherwise None."""
        if self._read or identity(self.path) in (None, self._before):
            return None
        try:
            content = _parsed(self.path.read_bytes())
        except OSError:
            return None
        self._read = isinstance(content, dict)
        return content if self._read else None


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
