"""Cases whose preprocessing is done once, so that no process decodes or resamples an image twice."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from monai.data import Dataset, MetaTensor, get_track_meta, set_track_meta
from monai.transforms import Compose, RandomizableTrait, Transform
from torch import Tensor
from torch.utils.data import DataLoader

from fedmed.data.describe import settings_text
from fedmed.data.entry_forms import FILE_KEYS
from fedmed.data.image_size import require_fits
from fedmed.data.store import MEMORY, CaseStore, case_key
from fedmed.data.transforms.foreground import FOREGROUND
from fedmed.errors import DataError, unwrapped

log = logging.getLogger("fedmed.data")

Step = Callable[[Any], Any]
_META_SWITCH = threading.RLock()  # MONAI has one switch for metadata, for all threads of the process


class CaseCacheDataset(Dataset):
    """Cases whose deterministic preprocessing is kept on disk. Items are dictionaries of plain tensors.

    Unlike in :class:`monai.data.PersistentDataset` the key holds size and modification time of the files and the
    settings of every transform, so a changed image or setting is noticed; files are memory-mapped, so a crop reads only
    its own pages; and random transforms run without MONAI's metadata tracking, which is most of their cost.

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
            # A loader draws a seed, which must not come from the generator of the training: nothing is drawn from that
            # where the cache is full already.
            own = torch.Generator()
            for _ in DataLoader(numbers, None, num_workers=workers, collate_fn=self._fill, generator=own):
                pass  # nothing worth sending between processes

    def _fill(self, index: Any) -> int:
        if self.store is not None:  # None: the disk became full meanwhile
            self.prepared(index)
        return index

    def has_foreground(self) -> bool:
        """Whether any case has foreground voxels, as a ``ForegroundIndexd`` among the transforms finds them."""
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
            raise _as_data_error(case, error) from error
        return {key: _plain(value) for key, value in result.items() if isinstance(value, Tensor)}


def _plain(tensor: Tensor) -> Tensor:
    # A clone: torch.save would write the full storage that a view belongs to.
    plain = tensor.as_tensor() if isinstance(tensor, MetaTensor) else tensor
    return plain.clone(memory_format=torch.contiguous_format)


def _as_data_error(case: Mapping[str, Any], error: BaseException) -> DataError:
    error = unwrapped(error)
    if isinstance(error, DataError):
        return error
    return DataError(f"{case.get('image')}: cannot be preprocessed ({error}); check the image or remove it")


@contextmanager
def _without_metadata() -> Iterator[None]:
    with _META_SWITCH:
        before = get_track_meta()
        set_track_meta(False)
        try:
            yield
        finally:
            set_track_meta(before)
