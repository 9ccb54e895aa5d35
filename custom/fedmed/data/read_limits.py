"""Limits of what is read: regular files alone, and no more than the machine's memory holds."""

import os
import resource
import stat
from pathlib import Path

import psutil

from fedmed.errors import DataError

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}
MOST, USUAL = "FEDMED_MAX_IMAGE_GB", 16.0  # the variable that sets what one image may take, and what it is without
KEPT = 0.9  # of the free memory; the rest is for what else the machine does
HEADROOM = 2**30  # bytes that a process may take beside its image: libraries are loaded when they are first used
GB = 1e9
_share: int | None = None  # of this process, where another one has set it


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
    with os.scandir(folder) as entries:
        names = sorted(one.name for one in entries if not one.is_file(follow_symlinks=False))
    for name in names:
        if not os.path.isdir(folder / name) and os.path.exists(folder / name):
            file_bytes(folder / name)


def most_bytes() -> int:
    """Bytes that one image may take on any machine; DataError where the variable does not say a number above 0."""
    text = os.environ.get(MOST) or str(USUAL)
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise DataError(f"${MOST} is {text!r}; give the gigabytes of memory that one image may take, such as {USUAL:g}")
    return int(number * GB)


def allowed_bytes() -> int:
    """Bytes that one image may take in this process now: at most :func:`most_bytes`, its share, and what is free."""
    return share_of(1) if _share is None else min(most_bytes(), _share)


def share_of(processes: int) -> int:
    """Bytes for each of several processes that read images at the same time."""
    free = int(KEPT * psutil.virtual_memory().available)
    return min(most_bytes(), free // max(1, processes))


def limit_memory(share: int) -> None:
    """Let this process take ``share`` bytes more than it has, and some for libraries; beyond, memory is refused to it.

    For a process that does nothing but read images. Where the system has no such limit (it is Linux's), only the sizes
    that headers state are held against the share.
    """
    global _share
    _share = share
    if (held := _data_bytes()) is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = held + share + HEADROOM
        resource.setrlimit(resource.RLIMIT_DATA, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _data_bytes() -> int | None:
    """Bytes that ``RLIMIT_DATA`` counts of this process: private memory that it may write to."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii", errors="replace").splitlines() if status.is_file() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData")), None)
