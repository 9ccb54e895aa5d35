"""Keep preprocessed cases on disk, so that no process decodes or resamples an image twice."""

import hashlib
import json
import logging
import os
import pickle
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import monai
import torch
from monai.data import Dataset, MetaTensor, get_track_meta, set_track_meta
from monai.transforms import Compose, RandomizableTrait, Transform
from torch import Tensor
from torch.utils.data import DataLoader

from fedmed.data.datalist import FILE_KEYS
from fedmed.data.describe import describe
from fedmed.data.transforms.foreground import FOREGROUND
from fedmed.errors import DataError

log = logging.getLogger("fedmed.data")

CACHE_VERSION = 1  # raise it when a transform of ours computes something else under the same settings
FOLDER = "fedmed-cases"
_OWN_FILE = re.compile(r"[0-9a-f]{64}\.(pt|[^.]+\.tmp)")
_UNREADABLE = (RuntimeError, pickle.UnpicklingError, EOFError, OSError, ValueError, KeyError)
# MONAI's switch for metadata is one for the whole process.
_META_SWITCH = threading.RLock()


def default_cache_dir() -> str:
    """The cache folder of a site that names none: ``$FEDMED_HOME/cache`` or ``~/.cache/fedmed/cache``."""
    return str(Path(os.environ.get("FEDMED_HOME") or "~/.cache/fedmed").expanduser() / "cache")


class CaseCacheDataset(Dataset):
    """Cases whose deterministic preprocessing is done once and kept on disk.

    Like :class:`monai.data.PersistentDataset` it stores what comes before the first random transform. Unlike it,
    the key holds size and modification time of the files and the settings of every transform, so a changed image
    or setting is noticed; files are memory-mapped, so a crop reads only its own pages; and random transforms run
    without MONAI's metadata tracking, which is most of their cost.

    Args:
        data: cases as :func:`fedmed.data.datalist.load_datalist` returns them.
        transform: deterministic transforms, then random ones. Only tensors survive the deterministic part.
        cache_dir: folder readable by its owner only; None = no cache.

    Items are dictionaries of plain tensors (a list of them where a crop yields several).

    Raises:
        DataError: the folder cannot be made, or a case cannot be prepared; names the file.
    """

    def __init__(
        self,
        data: Sequence[Mapping[str, Any]],
        transform: Sequence[Callable] | Callable,
        cache_dir: Path | str | None = None,
    ) -> None:
        compose = transform if isinstance(transform, Compose) else Compose(transform)
        super().__init__(data, compose)
        steps = compose.flatten().transforms
        self._split = next((i for i, step in enumerate(steps) if _is_random(step)), len(steps))
        self.transform = Compose(steps)
        self._settings = _text({"version": CACHE_VERSION, "monai": monai.__version__, "steps": steps[: self._split]})
        self.folder = _make_folder(Path(cache_dir)) if cache_dir is not None else None

    def prepared(self, index: int) -> dict[str, Tensor]:
        """Case ``index`` after the deterministic transforms."""
        case = self.data[index]
        if self.folder is None:
            return self._prepare(case)
        path = self.folder / f"{self._key(case)}.pt"
        stored = _read(path)
        if stored is None:
            stored = self._prepare(case)
            self._write(path, stored)
        return stored

    def prefill(self, num_workers: int = 0) -> None:
        """Prepare every case that is not in the cache yet; without a cache there is nothing to do."""
        if self.folder is None:
            return
        missing = [i for i, case in enumerate(self.data) if not (self.folder / f"{self._key(case)}.pt").is_file()]
        if not missing:
            return
        log.info("preparing %d of %d cases, once", len(missing), len(self.data))
        for _ in DataLoader(_Fill(self, missing), batch_size=None, num_workers=min(num_workers, len(missing))):
            pass

    def has_foreground(self) -> bool:
        """Whether any case has foreground voxels; needs a ``ForegroundIndexd`` among the transforms."""
        return any(len(self.prepared(index)[FOREGROUND]) for index in range(len(self.data)))

    def _transform(self, index: int) -> Any:
        prepared = self.prepared(index)
        if self._split == len(self.transform.transforms):
            return prepared
        with _without_metadata():
            return self.transform(prepared, start=self._split)

    def _prepare(self, case: Mapping[str, Any]) -> dict[str, Tensor]:
        try:
            with _META_SWITCH:
                result = self.transform(dict(case), end=self._split)
        except (RuntimeError, ValueError, DataError) as error:
            raise _as_data_error(case, error) from error
        return {key: _plain(value) for key, value in result.items() if isinstance(value, Tensor)}

    def _key(self, case: Mapping[str, Any]) -> str:
        files = {}
        for name in FILE_KEYS:
            if name in case:
                facts = _stat(case[name])
                files[name] = [str(case[name]), facts.st_size, facts.st_mtime_ns]
        return hashlib.sha256(f"{self._settings}{_text(files)}".encode()).hexdigest()

    def _write(self, path: Path, item: Mapping[str, Tensor]) -> None:
        """Write through a temporary file: a reader sees a whole file or none, and two writers do not clash."""
        temporary = None
        try:
            handle, temporary = tempfile.mkstemp(prefix=f"{path.stem}.", suffix=".tmp", dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                torch.save(dict(item), file)
            os.replace(temporary, path)
        except OSError as error:
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)
            log.warning("cache folder %s cannot be written (%s); going on without it, slowly", path.parent, error)
            self.folder = None


class _Fill(torch.utils.data.Dataset):
    """Prepares the missing cases of a dataset; yields nothing worth sending between processes."""

    def __init__(self, dataset: CaseCacheDataset, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> int:
        if self.dataset.folder is not None:  # None: the disk became full on the way
            self.dataset.prepared(self.indices[position])
        return position


def purge(cache_dir: Path | str) -> int:
    """Delete every preprocessed case below ``cache_dir`` and nothing else.

    Returns:
        Number of files deleted.
    """
    folder = Path(cache_dir) / FOLDER
    files = [path for path in folder.glob("*") if _OWN_FILE.fullmatch(path.name) and path.is_file()]
    for path in files:
        path.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    return len(files)


def _is_random(step: Any) -> bool:
    return isinstance(step, RandomizableTrait) or not isinstance(step, Transform)


def _text(value: Any) -> str:
    return json.dumps(describe(value), sort_keys=True)


def _make_folder(cache_dir: Path) -> Path:
    folder = cache_dir / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # preprocessed images are patient data
    except OSError as error:
        raise DataError(f"the cache folder {folder} cannot be made ({error}); correct the site's cache_dir") from error
    return folder


def _read(path: Path) -> dict[str, Tensor] | None:
    if not path.is_file():
        return None
    try:
        return dict(torch.load(path, mmap=True, weights_only=True))
    except _UNREADABLE as error:
        log.warning("cache file %s is damaged (%s) and is made again", path, type(error).__name__)
        return None


def _plain(tensor: Tensor) -> Tensor:
    # A clone: torch.save would write the whole storage that a view belongs to.
    plain = tensor.as_tensor() if isinstance(tensor, MetaTensor) else tensor
    return plain.clone(memory_format=torch.contiguous_format)


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise DataError(f"{path}: the file is gone ({error.strerror}); restore it or remove the entry") from error


def _as_data_error(case: Mapping[str, Any], error: BaseException) -> DataError:
    """MONAI wraps what goes wrong in a transform in a RuntimeError; the cause says it better."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DataError):
            return cause
        last, cause = cause, cause.__cause__
    return DataError(f"{case.get('image')}: cannot be preprocessed ({last}); check the image or remove it")


@contextmanager
def _without_metadata() -> Iterator[None]:
    with _META_SWITCH:
        before = get_track_meta()
        set_track_meta(False)
        try:
            yield
        finally:
            set_track_meta(before)
