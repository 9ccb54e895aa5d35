"""Several files that change together: all are written before the first one is put in its place."""

import os
import stat
import tempfile
from pathlib import Path


class Staging:
    """Files on the disk under temporary names beside those that they will replace.

    A full disk or a folder that cannot be written shows while they are written, when nothing has changed yet. Use it
    as a context manager: what is not committed is removed.
    """

    def __init__(self) -> None:
        self._files: list[tuple[Path, Path]] = []
        self._folders: list[Path] = []

    def add(self, path: Path, content: bytes, like: Path) -> None:
        """Write ``content`` for ``path``; whoever may read ``like`` may read it.

        Raises:
            OSError: no space, or no right to write.
        """
        if not path.parent.is_dir():
            path.parent.mkdir()
            self._folders.append(path.parent)
            path.parent.chmod(stat.S_IMODE(like.parent.stat().st_mode) | stat.S_IRWXU)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        self._files.append((Path(temporary), path))
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, stat.S_IMODE(like.stat().st_mode) & 0o666 | stat.S_IRUSR | stat.S_IWUSR)

    def commit(self) -> None:
        """Put the files in their places, in the order in which they were added; each is a rename."""
        while self._files:
            temporary, path = self._files[0]
            os.replace(temporary, path)
            self._files.pop(0)
        self._folders.clear()

    def __enter__(self) -> "Staging":
        return self

    def __exit__(self, *_: object) -> None:
        for temporary, _path in self._files:
            temporary.unlink(missing_ok=True)
        for folder in self._folders:
            if not any(folder.iterdir()):
                folder.rmdir()
