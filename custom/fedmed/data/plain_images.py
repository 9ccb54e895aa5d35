"""A list of training images without augmentation."""

from torch import Tensor

from fedmed.data.cache import CaseCacheDataset


class PlainImages:
    """What a dataset prepares once, before its random transforms: ``[i]["image"]``, (C, ...).

    Args:
        dataset: the training cases.
    """

    def __init__(self, dataset: CaseCacheDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset.data)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """Image ``index``."""
        return {"image": self.dataset.prepared(index)["image"]}
