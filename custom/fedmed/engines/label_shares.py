"""A labelled site tells how frequent each class is among its labels."""

import torch
from torch import Tensor

from fedmed.data.cache import CaseCacheDataset
from fedmed.engines.label_confidence import LabelConfidence
from fedmed.engines.told_once import ToldOnce


class LabelShares(ToldOnce):
    """Sends ``label_shares``, the share of each class in the training labels, (C,).

    Of voxels where labels are masks, of images where they are classes. Counted once, in the site's first round, after
    the received model has been scored: until then the number of classes is not known.

    Args:
        dataset: the training cases; each has a ``label``, a class or a mask of classes.
        confidence: has met a prediction of the network.
    """

    name = "label_shares"

    def __init__(self, dataset: CaseCacheDataset, confidence: LabelConfidence) -> None:
        super().__init__()
        self.dataset, self.confidence = dataset, confidence

    def find(self) -> Tensor | None:
        """The shares; None before the first prediction."""
        if self.confidence.counts is None:
            return None
        n_classes = len(self.confidence.counts)
        counts = sum((self._count(index, n_classes) for index in range(len(self.dataset))), torch.zeros(n_classes))
        return counts / counts.sum().clamp_min(1)

    def _count(self, index: int, n_classes: int) -> Tensor:
        label = self.dataset.data[index].get("label")
        found = torch.tensor([label]) if isinstance(label, int) else self.dataset.prepared(index)["label"].flatten()
        return torch.bincount(found.long(), minlength=n_classes)[:n_classes].double()
