"""A labelled site tells how bright its images are."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedmed.data.cache import CaseCacheDataset
from fedmed.data.intensities import histogram
from fedmed.engines.gradient_correction import Correction, RoundStart


class IntensityShares(Correction):
    """Changes nothing in the training; sends ``intensity_shares``, the histogram of the training images, (100,).

    Counted once, in the site's first round, over whole images; see :func:`fedmed.data.intensities.histogram`.

    Args:
        dataset: the training cases; each has an ``image`` from 0 to 1.
    """

    def __init__(self, dataset: CaseCacheDataset) -> None:
        self.dataset = dataset
        self._shares: Tensor | None = None

    def begin(self, start: RoundStart) -> None:
        """Before the round's first step."""
        if self._shares is None:
            self._shares = dataset_intensities(self.dataset)

    def extras(self) -> dict[str, float | Tensor]:
        """See the class."""
        return {} if self._shares is None else {"intensity_shares": self._shares}

    def state_dict(self) -> dict[str, Any]:
        """The histogram."""
        return {} if self._shares is None else {"shares": self._shares}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self._shares = state_dict.get("shares")


def dataset_intensities(dataset: CaseCacheDataset) -> Tensor:
    """The histogram of a dataset's prepared images, (100,).

    Raises:
        DataError: as :func:`fedmed.data.intensities.histogram`.
    """
    return histogram(dataset.prepared(index)["image"] for index in range(len(dataset.data)))
