"""Make a training loader whose batches depend only on the seed."""

from pathlib import Path

import torch
from monai.data import DataLoader
from torch.utils.data import RandomSampler, Subset

from fedmed.data.cache import CaseCacheDataset
from fedmed.errors import DataError
from fedmed.seeds import derive_seed


def training_loader(
    dataset: CaseCacheDataset,
    batch_size: int,
    steps: int,
    seed: int,
    num_workers: int = 0,
    foreground_in: Path | str | None = None,
) -> DataLoader | None:
    """Return a loader of exactly ``steps`` full batches.

    Cases are drawn without replacement; when all have been seen, a new permutation begins. The order of cases and
    the random transforms have separate generators, so changing an augmentation does not change the order of cases or
    the transforms before it (the crops). With ``num_workers=0`` equal seeds give equal batches in every process; with
    workers, equal seeds and equal worker counts do.

    Args:
        dataset: the cases; they are prepared first, so that a bad image is found before training starts. Without cases
            there is no loader.
        batch_size, steps: cases in a batch, and batches.
        seed: of order, crops and augmentation.
        num_workers: processes that load.
        foreground_in: the site's datalist, when training needs masks with foreground; it is named in the error.

    Raises:
        DataError: a case cannot be prepared, or no mask has foreground.
    """
    if len(dataset) == 0:
        return None
    dataset.prefill(num_workers)
    if foreground_in is not None and not dataset.has_foreground():
        raise DataError(
            f"{foreground_in}: none of the {len(dataset)} training masks has a foreground voxel, so there is nothing "
            "to learn; correct the masks or list the images under 'unlabeled'"
        )
    order = torch.Generator().manual_seed(derive_seed(seed, "order of cases"))
    transforms = torch.Generator().manual_seed(derive_seed(seed, "random transforms"))
    sampler = RandomSampler(dataset, num_samples=batch_size * steps, generator=order)
    return DataLoader(dataset, num_workers, batch_size=batch_size, sampler=sampler, generator=transforms)


def probe_loader(
    dataset: CaseCacheDataset, samples: int, seed: int, batch_size: int, num_workers: int = 0
) -> DataLoader:
    """Return a loader of some images, the same ones in the same order each time it is used.

    ``samples`` cases are drawn from ``seed`` without replacement, or all of them when there are fewer. DataError for
    fewer than one.
    """
    if samples < 1:
        raise DataError(f"the sample is to have {samples} images; use 1 or more, such as 100")
    generator = torch.Generator().manual_seed(derive_seed(seed, "probe images"))
    chosen = torch.randperm(len(dataset), generator=generator)[:samples].tolist()
    return DataLoader(Subset(dataset, chosen), num_workers, batch_size=batch_size)
