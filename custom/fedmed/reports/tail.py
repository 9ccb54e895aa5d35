"""Follow files that another process writes."""

import json
from pathlib import Path
from typing import Any

from fedmed.plain_text import every_text


def identity(path: Path) -> tuple[int, int] | None:
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
        """The objects of the lines that are new since the last call."""
        new = self._unread()
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        return [line for text in complete.splitlines() if (line := _parsed(text))]

    def _unread(self) -> bytes:
        if self._before is not None and identity(self.path) == self._before:
            return b""
        self._before = None
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                return file.read()
        except OSError:
            return b""


class Arrival(Tail):
    """Reads a JSON file that another process writes once, whole."""

    def poll(self) -> list[dict[str, Any]]:
        """The file's object, the first time that it is there; otherwise nothing."""
        new = self._unread()
        content = _parsed(new)
        self._offset += len(new) if content else 0
        return [content] if content else []


def _parsed(text: bytes) -> dict[str, Any]:
    """The JSON object that a text is, its texts as a terminal may show them; empty for anything else."""
    try:
        content = every_text(json.loads(text))
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
