"""Images and tables are read from regular files alone: reading a named pipe or a device never ends."""

import os
import stat
from pathlib import Path

from fedmed.errors import DataError

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


def file_bytes(path: Path) -> int:
    """Size of a regular file, whatever links lead to it.

    Raises:
        OSError: it is not there, or cannot be reached.
        DataError: it is something else than a regular file, which must not be opened.
    """
    facts = os.stat(path)
    if not stat.S_ISREG(facts.st_mode):
        kind = KINDS.get(stat.S_IFMT(facts.st_mode), "something else")
        target = f" (it leads to {os.path.realpath(path)})" if os.path.islink(path) else ""
        raise DataError(f"{path}: is {kind}, not a file{target}; remove it, or put the file itself there")
    return facts.st_size


def require_regular_files(folder: Path) -> None:
    """Raise DataError for a pipe, device or socket in a folder, hidden ones included: a reader of folders opens all."""
    with os.scandir(folder) as found:
        names = sorted(one.name for one in found if not one.is_file(follow_symlinks=False))
    for name in names:
        if not os.path.isdir(folder / name) and os.path.exists(folder / name):
            file_bytes(folder / name)
