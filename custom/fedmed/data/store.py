"""Files of preprocessed cases: complete or absent, readable by their owner only, never out of date."""

import hashlib
import logging
import os
import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmed.data.entry_forms import FILE_KEYS
from fedmed.durable_files import check_digest, write_tensors
from fedmed.errors import DataError, StateError
from fedmed.files import fedmed_home, write_atomically

log = logging.getLogger("fedmed.data")

FOLDER = "fedmed-cases"
PREPARED = (".pt", ".frames")  # files of prepared cases and videos
_OWN_FILE = re.compile(r"[0-9a-f]{64}\.(pt|frames|features|json|source|masks|lock|[^.]+\.tmp)")
_UNREADABLE = (StateError, RuntimeError, pickle.UnpicklingError, EOFError, OSError, ValueError, KeyError)


def default_cache_dir() -> str:
    """The cache folder of a site whose settings name none: ``$FEDMED_HOME/cache`` or ``~/.cache/fedmed/cache``."""
    return str(fedmed_home() / "cache")


def prepared_sizes(cache_dir: Path) -> list[int]:
    """Bytes of each case and video that is prepared there.

    Raises:
        OSError: the folder cannot be read.
    """
    return [path.stat().st_size for path in (cache_dir / FOLDER).iterdir() if path.suffix in PREPARED]


class CaseStore:
    """A folder of preprocessed cases; see :class:`fedmed.data.cache.CaseCacheDataset` for what MONAI's cache lacks.

    It is made below ``cache_dir`` with mode 0700, because its content is patient data; DataError if that fails.
    """

    def __init__(self, cache_dir: Path | str) -> None:
        self.folder = Path(cache_dir).expanduser() / FOLDER
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)
        except OSError as error:
            raise DataError(
                f"the cache folder {self.folder} cannot be made ({error}); correct the site's cache_dir"
            ) from error

    def path(self, case: Mapping[str, Any], settings: str) -> Path:
        """Where a case is stored: see :func:`case_key`."""
        return self.folder / f"{case_key(case, settings)}.pt"

    @staticmethod
    def read(path: Path) -> dict[str, Tensor] | None:
        """Return tensors that read only the pages used and never write to the file; None without a sound file.

        The whole file is read and its digest checked when this process meets it first: a case is read in every epoch.
        """
        if not path.is_file():
            return None
        try:
            check_once(path, check_digest)
            return dict(torch.load(path, mmap=True, weights_only=True))
        except _UNREADABLE as error:
            log.warning("cache file %s is damaged (%s) and will be made again", path, type(error).__name__)
            return None

    @staticmethod
    def write(path: Path, item: Mapping[str, Tensor]) -> None:
        """Write a complete file or none; OSError if the disk is full or the folder cannot be written."""
        write_atomically(path, lambda stream: write_tensors(stream, item))


_CHECKED: set[tuple[str, int, int]] = set()  # path, size and time of change of the files that this process found sound


def check_once(path: Path, check: Callable[[Path], object]) -> None:
    """Check a file of a cache unless this process has; it is checked again when it has changed."""
    facts = path.stat()
    known = str(path), facts.st_size, facts.st_mtime_ns
    if known not in _CHECKED:
        check(path)
        _CHECKED.add(known)


class CaseMemory:
    """Prepared cases in memory.

    No case is dropped for a newer one: cases are drawn in random order, so that would only change which are missing.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._items: dict[str, dict[str, Tensor]] = {}

    def read(self, key: str) -> dict[str, Tensor] | None:
        """Return a copy, which the caller may change, or None."""
        item = self._items.get(key)
        return None if item is None else {name: tensor.clone() for name, tensor in item.items()}

    def write(self, key: str, item: Mapping[str, Tensor], limit: int) -> None:
        """Keep a copy, if everything that is kept then has at most ``limit`` bytes."""
        size = sum(tensor.nbytes for tensor in item.values())
        if self.bytes + size <= limit and key not in self._items:
            self._items[key] = {name: tensor.clone() for name, tensor in item.items()}
            self.bytes += size


MEMORY = CaseMemory()  # one for the process: a federation builds its datasets anew in every round


def case_key(case: Mapping[str, Any], settings: str) -> str:
    """64 hexadecimal digits that depend on path, size and modification time of a case's files and on ``settings``.

    A label that is a class is not a file and is not stored. DataError if a file of the case is gone.
    """
    digest = hashlib.sha256(settings.encode())
    for name in FILE_KEYS:
        if name in case and not isinstance(case[name], int):
            try:
                facts = os.stat(case[name])
            except OSError as error:
                raise DataError(
                    f"{case[name]}: the file is gone ({error.strerror}); restore it or remove the entry"
                ) from error
            text = f"\0{name}\0{case[name]}\0{facts.st_size}\0{facts.st_mtime_ns}"
            digest.update(text.encode(errors="surrogateescape"))
    return digest.hexdigest()


def purge(cache_dir: Path | str) -> int:
    """Delete each preprocessed case and video and all features below ``cache_dir``, nothing else; return how many."""
    folder = Path(cache_dir).expanduser() / FOLDER
    files = [path for path in folder.glob("*") if _OWN_FILE.fullmatch(path.name) and path.is_file()]
    for path in files:
        path.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    return len(files)
