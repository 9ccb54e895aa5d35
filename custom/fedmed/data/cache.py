"""Cases whose preprocessing is done once, so that no process decodes or resamples an image twice, and their files.

Files are complete or absent, readable by their owner only, never out of date.
"""

import functools
import hashlib
import json
import logging
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import monai
import numpy as np
import torch
from monai.data import Dataset, get_track_meta, set_track_meta
from monai.transforms import Compose, RandomizableTrait, Transform
from torch import Tensor
from torch.utils.data import DataLoader

from fedmed.data.datalist import FILE_KEYS
from fedmed.data.image_size import require_fits
from fedmed.data.listed_images import plain
from fedmed.durable_files import check_digest, write_tensors
from fedmed.errors import DataError, StateError, unwrapped
from fedmed.files import CACHE_FOLDER, write_atomically

log = logging.getLogger("fedmed.data")

FOREGROUND = "foreground_index"  # of a prepared case: see ForegroundIndexd
_UNREADABLE = (StateError, RuntimeError, pickle.UnpicklingError, EOFError, OSError, ValueError, KeyError)
_CHECKED: set[tuple[str, int, int]] = set()  # path, size and time of change of the files that this process found sound
Step = Callable[[Any], Any]
_META_SWITCH = threading.RLock()  # MONAI has one switch for metadata, for all threads of the process
CACHE_VERSION = 2  # to be raised when a transform of FedMed computes something else with the same settings
_PLAIN = (str, int, float, bool, type(None))
_TEXT = (Enum, torch.dtype, torch.device, np.dtype, slice)
_DESCRIBED: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class CaseStore:
    """A folder of preprocessed cases; see :class:`fedmed.data.cache.CaseCacheDataset` for what MONAI's cache lacks.

    It is made below ``cache_dir`` with mode 0700, because its content is patient data; DataError if that fails.
    """

    def __init__(self, cache_dir: Path | str) -> None:
        self.folder = Path(cache_dir).expanduser() / CACHE_FOLDER
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)
        except OSError as error:
            raise DataError(f"cache folder {self.folder} cannot be made ({error}); correct cache_dir") from error

    def path(self, case: Mapping[str, Any], settings: str) -> Path:
        """Path of a stored case: see :func:`case_key`."""
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


def check_once(path: Path, check: Callable[[Path], object]) -> None:
    """Check a file of a cache unless this process has; it is checked again when it has changed."""
    facts = path.stat()
    known = str(path), facts.st_size, facts.st_mtime_ns
    if known not in _CHECKED:
        check(path)
        _CHECKED.add(known)


class CaseMemory:
    """Prepared cases in memory; none is dropped for a newer one, since cases are drawn in random order."""

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
                raise DataError(f"{case[name]}: is gone ({error.strerror}); restore it or remove the entry") from error
            text = f"\0{name}\0{case[name]}\0{facts.st_size}\0{facts.st_mtime_ns}"
            digest.update(text.encode(errors="surrogateescape"))
    return digest.hexdigest()


class CaseCacheDataset(Dataset):
    """Cases whose deterministic preprocessing is kept on disk. Items are dictionaries of plain tensors.

    Unlike in :class:`monai.data.PersistentDataset` the key holds size and time of change of the files and the settings
    of every transform, so a changed image or setting is noticed; a crop reads only its own pages of a file; and random
    transforms run without MONAI's metadata tracking, which is most of their cost.

    Args:
        data: cases as :func:`fedmed.data.datalist.load_datalist` returns them.
        transform: deterministic transforms, of which only tensors survive, then random ones. A label that is a class,
            an int, is not stored: the stored image can be used with any class.
        cache_dir: folder for the prepared cases; None = prepare them each time.
        in_memory_bytes: limit of the prepared cases that this process also keeps in memory, for all datasets together.
            Opening a file takes longer than everything else that is done with a small image.
        numbered: whether each item has its place in ``data`` as ``number``, an int64 tensor ().

    Raises:
        DataError: the folder cannot be made, or a case cannot be prepared; names the file.
    """

    def __init__(
        self,
        data: Sequence[Mapping[str, Any]],
        transform: Sequence[Step] | Step,
        cache_dir: Path | str | None = None,
        in_memory_bytes: int = 0,
        numbered: bool = False,
    ) -> None:
        steps = (transform if isinstance(transform, Compose) else Compose(transform)).flatten().transforms
        super().__init__(data, Compose(steps))
        random = [isinstance(step, RandomizableTrait) or not isinstance(step, Transform) for step in steps]
        self._split = random.index(True) if any(random) else len(steps)
        self._settings = settings_text(steps[: self._split])
        self.store = CaseStore(cache_dir) if cache_dir is not None else None
        self.in_memory_bytes, self.numbered = in_memory_bytes, numbered

    def prepared(self, index: int) -> dict[str, Tensor]:
        """Case ``index`` after the deterministic transforms, from memory or disk where possible."""
        case = self.data[index]
        image = {name: value for name, value in case.items() if name != "label" or not isinstance(value, int)}
        return self._image(image) | ({} if len(image) == len(case) else {"label": torch.tensor(case["label"])})

    def _image(self, case: Mapping[str, Any]) -> dict[str, Tensor]:
        if self.in_memory_bytes <= 0:
            return self._stored(case)
        key = case_key(case, self._settings)
        item = MEMORY.read(key)
        if item is None:
            item = self._stored(case)
            MEMORY.write(key, item, self.in_memory_bytes)
        return item

    def _stored(self, case: Mapping[str, Any]) -> dict[str, Tensor]:
        if self.store is None:
            return self._prepare(case)
        path = self.store.path(case, self._settings)
        stored = self.store.read(path)
        if stored is not None:
            return stored
        made = self._prepare(case)
        try:
            self.store.write(path, made)
        except OSError as error:
            log.warning("the cache %s cannot be written (%s); continuing without it, more slowly", path.parent, error)
            self.store = None
        return made

    def prefill(self, num_workers: int = 0) -> None:
        """Prepare every case that is not on disk yet; does nothing without a cache."""
        if self.store is None:
            return
        paths = [self.store.path(case, self._settings) for case in self.data]
        missing = [index for index, path in enumerate(paths) if not path.is_file()]
        if missing:
            log.info("preparing %d of %d cases; this happens once", len(missing), len(self.data))
            numbers: Any = missing  # a list is a dataset too
            workers = min(num_workers, len(missing))
            generator = torch.Generator()  # a full cache draws no seed, so none may come from the training's generator
            for _ in DataLoader(numbers, None, num_workers=workers, collate_fn=self._fill, generator=generator):
                pass  # nothing worth sending between processes

    def _fill(self, index: Any) -> int:
        if self.store is not None:  # None: the disk became full meanwhile
            self.prepared(index)
        return index

    def has_foreground(self) -> bool:
        """True where any case has foreground voxels, as a ``ForegroundIndexd`` among the transforms finds them."""
        return any(len(self.prepared(index)[FOREGROUND]) for index in range(len(self.data)))

    def _transform(self, index: int) -> Any:
        prepared = self.prepared(index) | ({"number": torch.tensor(index)} if self.numbered else {})
        if self._split == len(self.transform.transforms):
            return prepared
        with _without_metadata():
            return self.transform(prepared, start=self._split)

    def _prepare(self, case: Mapping[str, Any]) -> dict[str, Tensor]:
        for name in FILE_KEYS:
            if isinstance(case.get(name), (str, Path)):
                require_fits(Path(case[name]))
        try:
            with _META_SWITCH:
                result = self.transform(dict(case), end=self._split)
        except (RuntimeError, ValueError, DataError) as error:
            if isinstance(cause := unwrapped(error), DataError):
                raise cause from error
            text = f"{case.get('image')}: cannot be preprocessed ({cause}); check the image or remove it"
            raise DataError(text) from error
        # Clones: torch.save would write the full storage that a view belongs to.
        return {
            key: plain(value).clone(memory_format=torch.contiguous_format)
            for key, value in result.items()
            if isinstance(value, Tensor)
        }


@contextmanager
def _without_metadata() -> Iterator[None]:
    with _META_SWITCH:
        before = get_track_meta()
        set_track_meta(False)
        try:
            yield
        finally:
            set_track_meta(before)


def settings_text(steps: Sequence[Any]) -> str:
    """Describe the deterministic transforms in text that is equal in every process."""
    for step in steps:
        # Some transforms store facts of the last image among their attributes, so they are described before first use.
        if step not in _DESCRIBED:
            _DESCRIBED[step] = _describe(step)
    facts = {"version": CACHE_VERSION, "monai": monai.__version__, "steps": [_DESCRIBED[step] for step in steps]}
    return json.dumps(facts, sort_keys=True)


def _describe(value: Any) -> Any:
    """Return ``value`` as nested lists, dictionaries and plain values that ``json`` can write.

    Objects become their class path and attributes, functions their path, arrays their hash. Nothing depends on memory
    addresses or on the state of random generators; MONAI's ``pickle_hashing`` does, and refuses lambdas.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, _TEXT):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _describe(item) for key, item in sorted(value.items(), key=lambda pair: str(pair[0]))}
    if isinstance(value, (list, tuple)):
        return [_describe(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(_describe(item)) for item in value)
    if isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
        array = np.ascontiguousarray(value)
        return [str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
    if isinstance(value, functools.partial):
        return ["partial", _describe(value.func), _describe(value.args), _describe(value.keywords)]
    if isinstance(value, np.random.RandomState):
        return "random state"
    if hasattr(value, "__qualname__"):  # a function or a class
        return _path(value)
    return [_path(type(value)), _describe(vars(value)) if hasattr(value, "__dict__") else ""]


def _path(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"
