"""A folder's images, one by one, as a bundle's own inference prepares them."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from monai.data import MetaTensor
from torch import Tensor

from fedmed.bundles.infer import inference_errors, open_inference
from fedmed.data.listed_images import plain
from fedmed.errors import BundleError, DataError

NEEDED = ("dataset", "inferer", "network", "weights")  # of inference, as MONAI's bundles name them
KEPT = 2**30  # bytes of prepared images that are kept; of a larger folder each is read again


class FolderImages:
    """Prepared images of a folder; those that cannot be read are left out and named.

    They are read one after the other, so they are best asked for in their order.

    Args:
        root: a bundle whose code may run.
        folder: of images, or a video.
        values: settings of its inference to replace, such as ``device``.
        output_dir: where nothing is written.

    Attributes:
        classes: names in the order of the outputs; empty where the bundle does not say them.
        names: of each image, the file below the folder, and its second in a video.
        files: those that had at least one image that could be read.
        faults: why others could not be read.
        timed: whether they are frames, which have a time or none.

    Raises:
        BundleError: the bundle has no such inference, or fails.
        DataError: there is no such folder, or none of its files can be read.
    """

    def __init__(self, root: Path, folder: Path, values: Mapping[str, Any], output_dir: Path) -> None:
        self.root, self.folder = root, folder.expanduser().absolute()
        if not self.folder.exists():
            raise DataError(f"{folder} does not exist; give a folder of images of this hospital")
        self._values, self._output = dict(values), output_dir
        places = {"bundle_root": str(root), "dataset_dir": str(self.folder), "output_dir": str(output_dir)}
        self.parser = open_inference(root, {**places, **values})
        if lacking := [name for name in NEEDED if name not in self.parser]:
            raise BundleError(f"inference of {root.name} has no '{lacking[0]}', by which its images could be read")
        self.classes: list[str] = list(self.parser.get_parsed_content("classes")) if "classes" in self.parser else []
        self.names: list[str] = []
        self.files: list[str] = []
        self.faults: list[str] = []
        self.timed = False
        self._reading: Iterator[Tensor] = iter(())
        self._next = 0
        with inference_errors(self.root):
            self._dataset = self.parser.get_parsed_content("dataset")
            self._kept = self._look()
        if not self.names:
            first = f"; the first: {self.faults[0]}" if self.faults else ""
            raise DataError(
                f"{self.folder}: none of its files is an image that {self.root.name} reads{first}. Give images of the "
                "kind that the bundle was trained with; its docs/README.md says which"
            )

    def _look(self) -> list[Tensor]:
        """Read all images once, and return them; none where they are too many to be kept."""
        kept, size = [], 0
        for item in self._items():
            image, file = plain(item["image"]), self._file(item)
            self.names.append(self._name(item))
            self.files += [file] if file not in self.files[-1:] else []
            self.timed |= "second" in item
            size += image.numel() * image.element_size()
            if size <= KEPT:
                kept.append(image)
        return kept if size <= KEPT else []

    def _items(self, note: bool = True) -> Iterator[Mapping[str, Any]]:
        """Items that can be read; the faults of others are kept if ``note``."""
        dataset = self._dataset
        each = (dataset[place] for place in range(len(dataset))) if hasattr(dataset, "__len__") else iter(dataset)
        for item in each:
            fault = str(item.get("error") or "")
            if not fault:
                yield item
            elif note:
                self.faults.append(fault)

    def _file(self, item: Mapping[str, Any]) -> str:
        if "name" in item:
            return str(item["name"])
        image = item["image"]
        path = image.meta.get("filename_or_obj") if isinstance(image, MetaTensor) else None
        return Path(str(path)).name if path else f"image {len(self.names) + 1}"

    def _name(self, item: Mapping[str, Any]) -> str:
        second = float(item.get("second", math.nan))
        return self._file(item) if math.isnan(second) else f"{self._file(item)}, {second:g} s"

    @property
    def of_videos(self) -> bool:
        """True where some files hold several images."""
        return len(self.files) < len(self)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, place: int) -> Mapping[str, Tensor]:
        """Return ``image`` (C, ...), a plain tensor; BundleError if it could be read before, and now cannot."""
        if self._kept:
            return {"image": self._kept[place]}
        if place < self._next:
            self._reading, self._next = iter(()), 0
        if self._next == 0:
            self._reading = (plain(item["image"]) for item in self._items(note=False))
        with inference_errors(self.root):
            for image in self._reading:
                self._next += 1
                if self._next > place:
                    return {"image": image}
        raise BundleError(f"{self.folder} has changed while it was read; start again")

    def with_settings(self, settings: Mapping[str, Any]) -> "FolderImages":
        """Return the same images with further settings of the bundle's inference."""
        return FolderImages(self.root, self.folder, {**self._values, **settings}, self._output)

    def network(self) -> Any:
        """Return the bundle's network with its weights, ready to infer."""
        with inference_errors(self.root):
            self.parser.get_parsed_content("weights")
            return self.parser.get_parsed_content("network").eval()

    def infer(self, images: Tensor, network: Any) -> Tensor:
        """Return what the bundle's inference makes of a batch (B, C, ...) on the network's device."""
        with inference_errors(self.root), torch.no_grad():
            return plain(self.parser.get_parsed_content("inferer")(images, network))
