"""The scans that inference takes one after the other; one that cannot be read does not stop the others."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from monai.data import DataLoader
from torch.utils.data import IterableDataset, get_worker_info

from covid_ct.errors import BundleInputError

log = logging.getLogger("covid_ct")


class ScanDataset(IterableDataset[dict[str, Any]]):
    """Prepared scans; in place of one that cannot be read, ``error``: which, and why.

    Args:
        data: ``{"image": path}`` each.
        transform: the preparation of a scan.
    """

    def __init__(self, data: Sequence[Mapping[str, Any]], transform: Any) -> None:
        self.data, self.transform = list(data), transform

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        for case in self.data[worker.id :: worker.num_workers] if worker else self.data:
            try:
                yield self.transform(case)
            except RuntimeError as error:  # MONAI wraps whatever a transform raises in it
                yield {"error": _reason(str(case["image"]), error)}


class ScanLoader(DataLoader):
    """Batches of one scan, since scans differ in size. One that cannot be read is left out, and the log says why.

    Args:
        dataset: to load.
        num_workers: processes that load.

    Raises:
        BundleInputError: when all others have been given out, if one could not be read; names each.
    """

    def __init__(self, dataset: ScanDataset, num_workers: int = 0) -> None:
        super().__init__(dataset, num_workers=num_workers, batch_size=1)
        self.total = len(dataset.data)

    def __iter__(self) -> Iterator[Any]:
        failed: list[str] = []
        for batch in super().__iter__():
            if "error" in batch:
                failed += batch["error"]
                log.error("%s; it gets no mask", failed[-1])
            else:
                yield batch
            del batch  # a finished scan would stay in memory together with the one that is being read
        if failed:
            rest = "; the others have their masks" if len(failed) < self.total else ""
            raise BundleInputError(
                f"{len(failed)} of {self.total} scans could not be read{rest}: {' | '.join(sorted(failed))}"
            )


def _reason(path: str, error: BaseException) -> str:
    """The first error that is not MONAI's wrapping, in one line that names the scan."""
    while type(error) is RuntimeError and error.__cause__ is not None:
        error = error.__cause__
    said = " ".join((str(error) or type(error).__name__).split())
    if isinstance(error, BundleInputError):
        return said
    return f"{path}: cannot be read ({said.replace(path, 'the file')}); copy or export it again, or remove it"
