"""From the files of a case to batches: load, check, remember the foreground, draw in an order of the seed."""

import logging
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.data import DataLoader, MetaTensor
from monai.transforms import LoadImage, MapTransform, Transform
from torch import Tensor
from torch.utils.data import RandomSampler, Subset

from fedmed.data.cache import FOREGROUND, CaseCacheDataset
from fedmed.data.geometry import axis_order, corner_distance, unit_fault
from fedmed.data.listed_images import plain
from fedmed.data.prepare.volume_faults import NORMALISED
from fedmed.errors import DataError, first_line
from fedmed.seeds import derive_seed

log = logging.getLogger(__name__)
BACKGROUND = "background_index"
RESOLUTION = 1 << 20  # of a place within a part


def hush_dicom_decoder() -> None:
    """Silence MONAI 1.6's warning at every ``LoadImage`` that a GPU decoder, which only DICOM needs, is missing."""
    logging.getLogger("monai.data.nvimgcodec_pydicom_plugin").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message="NvImgCodecPydicomReader")


class LoadCased(MapTransform):
    """Read images as channel-first float32 :class:`monai.data.MetaTensor` with their affine, shape (1, X, Y, Z).

    Args:
        keys: entries that hold paths.
        allow_missing_keys: accept cases without some of them, such as a case without a mask.

    Raises:
        DataError: a file cannot be read; names the file and the reader's complaint.
    """

    def __init__(self, keys: KeysCollection, allow_missing_keys: bool = True) -> None:
        super().__init__(keys, allow_missing_keys)
        hush_dicom_decoder()
        self.loader = LoadImage(image_only=True, ensure_channel_first=True)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        for key in self.key_iterator(case):
            try:
                case[key] = self.loader(case[key])
            except Exception as error:  # noqa: BLE001 - each file format's reader has exceptions of its own
                reason = first_line(error)
                raise DataError(f"{data[key]}: the {key} cannot be read ({reason}); restore or remove it") from error
        return case


class CheckCased(Transform):
    """Check a freshly loaded case; it comes right after loading, while shape and affine are the file's own.

    Args:
        image: key of the image, a MetaTensor (1, X, Y, Z).
        label: key of the mask; a case without it is checked as an image alone.
        tolerance: largest distance in mm between a corner of the image and the same corner of the mask. A mask on the
            image's grid whose axes are stored in another order or direction is moved onto it, voxel by voxel.

    Raises:
        DataError: an image that is not one volume, is empty, not in millimetres, normalised and not in HU, or holds
            NaN or infinity; a mask of another shape or position, or with values other than 0 and 1. Names the file and
            what to do.
    """

    def __init__(self, image: str = "image", label: str = "label", tolerance: float = 0.1) -> None:
        self.image, self.label, self.tolerance = image, label, tolerance

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        _check_image(case[self.image])
        if self.label in case:
            case[self.label] = _moved(case[self.image], case[self.label], self.tolerance)
            _check_mask(case[self.image], case[self.label], self.tolerance)
        return case


def _name(tensor: MetaTensor) -> str:
    return str(tensor.meta.get("filename_or_obj", "an image without a file name"))


def _check_image(image: MetaTensor) -> None:
    name, size = _name(image), tuple(image.shape[1:])
    if fault := unit_fault(image.meta):
        raise DataError(f"{name}: {fault}")
    if image.numel() == 0:
        raise DataError(f"{name}: the image is empty (shape {size}); remove it from the datalist")
    if len(size) != 3 or min(size) < 2:
        raise DataError(f"{name}: the image has shape {size}; a volume of at least two slices is needed")
    if image.shape[0] != 1:
        raise DataError(f"{name}: the file holds {image.shape[0]} volumes; save the one to use in a file of its own")
    if count := int((~torch.isfinite(image)).sum()):
        raise DataError(f"{name}: {count} voxels are NaN or infinite; export the image again, in Hounsfield units")
    low, high = float(image.min()), float(image.max())
    if low < high and max(abs(low), abs(high)) <= NORMALISED:
        raise DataError(f"{name}: values lie in {low:.3g}…{high:.3g}, which are not HU; export the image again in HU")
    affine = np.asarray(image.affine, dtype=np.float64)
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-6:
        raise DataError(f"{name}: the affine has no usable voxel spacing; export the image again with its geometry")


def _moved(image: MetaTensor, mask: MetaTensor, tolerance: float) -> MetaTensor:
    """The mask in the axis order of its image, where only that is different; else as it is."""
    mask_affine, affine = (np.asarray(each.affine, dtype=np.float64) for each in (mask, image))
    order = axis_order(mask_affine, tuple(mask.shape[1:]), affine, tuple(image.shape[1:]), tolerance)
    if order is None:
        return mask
    log.info("%s: the mask has its axes in another order than its image; moved onto it", _name(mask))
    axes, flips = ([axis + 1 for axis in which] for which in order)
    moved = MetaTensor(mask.as_tensor().permute(0, *axes).flip(flips)).copy_meta_from(mask)
    moved.affine = image.affine.clone()
    return moved


def _check_mask(image: MetaTensor, mask: MetaTensor, tolerance: float) -> None:
    name = _name(mask)
    if mask.shape != image.shape:
        raise DataError(
            f"{name}: the mask has shape {tuple(mask.shape)}, its image {_name(image)} has {tuple(image.shape)} "
            "(channel, x, y, z); draw or resample the mask on the grid of the image"
        )
    distance = corner_distance(np.asarray(image.affine), np.asarray(mask.affine), tuple(image.shape[1:]))
    if not distance <= tolerance:
        raise DataError(
            f"{name}: the mask lies up to {distance:.1f} mm away from its image {_name(image)} (their affines "
            "differ); resample the mask on the grid of the image"
        )
    values = plain(mask)
    wrong = values[(values != 0) & (values != 1)]
    if wrong.numel():
        shown = ", ".join(f"{value:g}" for value in torch.unique(wrong)[:5].tolist())
        raise DataError(f"{name}: the mask holds {shown} besides 0 and 1; save it with 0 outside and 1 inside")


class ForegroundIndexd(Transform):
    """Add flat indices of foreground and background voxels, for ``RandCropByPosNegLabeld``.

    A full CT has ten million background voxels, whose indices, which MONAI's ``FgBgToIndicesd`` would keep, are larger
    than the image. At most ``limit`` of each class are kept: one from each of as many equal parts, so that the
    distribution of crops hardly changes. Its place in the part is drawn, because a constant stride that shares factors
    with the volume's size would meet the same few slices again and again.

    Args:
        label: key of the mask, shape (1, X, Y, Z), foreground > 0.
        limit: largest number of indices of each class.

    Returns:
        The case with ``foreground_index`` and ``background_index``: int32, flat indices into (X, Y, Z).
    """

    def __init__(self, label: str = "label", limit: int = 65_536) -> None:
        if limit < 1:
            raise ValueError(f"limit is {limit}; at least one index is needed")
        self.label, self.limit = label, limit

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        mask = plain(data[self.label])[0] > 0
        return {**data, FOREGROUND: self._indices(mask), BACKGROUND: self._indices(~mask)}

    def _indices(self, mask: Tensor) -> Tensor:
        indices = torch.nonzero(mask.flatten()).flatten()
        if len(indices) > self.limit:
            # Integers and a fixed seed: the same voxels on every machine.
            starts = torch.arange(self.limit + 1) * len(indices) // self.limit
            drawn = torch.randint(RESOLUTION, (self.limit,), generator=torch.Generator().manual_seed(0))
            indices = indices[starts[:-1] + starts.diff() * drawn // RESOLUTION]
        return indices.to(torch.int32)


def training_loader(
    dataset: CaseCacheDataset,
    batch_size: int,
    steps: int,
    seed: int,
    num_workers: int = 0,
    foreground_in: Path | str | None = None,
) -> DataLoader | None:
    """Return a loader of exactly ``steps`` full batches; None without cases.

    Cases are drawn without replacement; when all have been seen, a new permutation begins. The order of cases and
    the random transforms have separate generators, so changing an augmentation does not change the order of cases or
    the transforms before it (the crops). Equal seeds and equal worker counts give equal batches in every process.

    Args:
        dataset: the cases; they are prepared first, so that a bad image is found before training starts.
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
    """Return a loader of the same images in the same order each time it is used.

    ``samples`` cases, or all if there are fewer, are drawn from ``seed`` without replacement; DataError for 0.
    """
    if samples < 1:
        raise DataError(f"the sample is to have {samples} images; use 1 or more, such as 100")
    generator = torch.Generator().manual_seed(derive_seed(seed, "probe images"))
    chosen = torch.randperm(len(dataset), generator=generator)[:samples].tolist()
    return DataLoader(Subset(dataset, chosen), num_workers, batch_size=batch_size)


class Alternating:
    """A loader that gives a batch of each of its loaders in turn; one that has ended is left out.

    Two loaders of as many batches are mixed half and half, whatever the sizes of their data.

    Attributes:
        dataset: of the first loader.

    Raises:
        DataError: there are no loaders.
    """

    def __init__(self, loaders: Sequence[Any]) -> None:
        if not loaders:
            raise DataError("batches shall alternate between loaders, and there are no loaders; list one at least")
        self.loaders, self.dataset = list(loaders), getattr(loaders[0], "dataset", None)

    def __len__(self) -> int:
        return sum(map(len, self.loaders))

    def __iter__(self) -> Iterator[Any]:
        ended = object()
        for batches in zip_longest(*self.loaders, fillvalue=ended):
            yield from (batch for batch in batches if batch is not ended)


class PlainImages:
    """Training images as a dataset prepares them once, before its random transforms: ``[i]["image"]``, (C, ...)."""

    def __init__(self, dataset: CaseCacheDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset.data)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"image": self.dataset.prepared(index)["image"]}
