"""Several files that change together: all are written before the first one is put in its place."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path


class Staging(contextlib.ExitStack):
    """Files on the disk under temporary names beside those that they will replace.

    A full disk or a folder that cannot be written shows while they are written, when nothing has changed yet. Use it
    as a context manager: what is not committed is removed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._files: list[tuple[Path, Path]] = []

    def add(self, path: Path, content: bytes, like: Path) -> None:
        """Write ``content`` for ``path``; whoever may read ``like`` may read it.

        Raises:
            OSError: no space, or no right to write.
        """
        for folder in reversed(path.parents):
            if not folder.is_dir():
                folder.mkdir()
                self.callback(_remove_if_empty, folder)
                folder.chmod(stat.S_IMODE(like.parent.stat().st_mode) | stat.S_IRWXU)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        temporary = Path(name)
        self.callback(temporary.unlink, missing_ok=True)
        self._files.append((temporary, path))
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(stat.S_IMODE(like.stat().st_mode) & 0o666 | stat.S_IRUSR | stat.S_IWUSR)

    def commit(self) -> None:
        """Put the files in their places, in the order in which they were added; each is a rename."""
        for temporary, path in self._files:
            os.replace(temporary, path)


def _remove_if_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
