"""A labelled site tells how frequent each class is among its labels."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.data.cache import CaseCacheDataset
from fedmed.engines.gradient_correction import Correction, RoundStart
from fedmed.engines.label_confidence import LabelConfidence


class LabelShares(Correction):
    """Changes nothing in the training; sends ``label_shares``, the share of each class in the training labels, (C,).

    Of voxels where labels are masks, of images where they are classes. Counted once, in the site's first round, after
    the received model has been scored: until then the number of classes is not known.

    Args:
        dataset: the training cases; each has a ``label``, a class or a mask of classes.
        confidence: has met a prediction of the network.
    """

    def __init__(self, dataset: CaseCacheDataset, confidence: LabelConfidence) -> None:
        self.dataset, self.confidence = dataset, confidence
        self._shares: Tensor | None = None

    def begin(self, start: RoundStart) -> None:
        """Before the round's first step."""
        if self._shares is None and self.confidence.counts is not None:
            n_classes = len(self.confidence.counts)
            counts = sum((self._count(index, n_classes) for index in range(len(self.dataset))), torch.zeros(n_classes))
            self._shares = counts / counts.sum().clamp_min(1)

    def _count(self, index: int, n_classes: int) -> Tensor:
        label = self.dataset.data[index].get("label")
        found = torch.tensor([label]) if isinstance(label, int) else self.dataset.prepared(index)["label"].flatten()
        return torch.bincount(found.long(), minlength=n_classes)[:n_classes].double()

    def extras(self) -> dict[str, float | Tensor]:
        """See the class."""
        return {} if self._shares is None else {"label_shares": self._shares.float()}

    def state_dict(self) -> dict[str, Any]:
        """The shares."""
        return {} if self._shares is None else {"shares": self._shares}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self._shares = state_dict.get("shares")
