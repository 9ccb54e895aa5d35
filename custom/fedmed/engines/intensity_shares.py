"""A labelled site tells how bright its images are."""

from torch import Tensor

from fedmed.data.cache import CaseCacheDataset
from fedmed.data.intensities import histogram
from fedmed.engines.told_once import ToldOnce


class IntensityShares(ToldOnce):
    """Sends ``intensity_shares``, the histogram of the training images, (100,).

    Over whole images; see :func:`fedmed.data.intensities.histogram`.

    Args:
        dataset: the training cases; each has an ``image`` from 0 to 1.
    """

    name = "intensity_shares"

    def __init__(self, dataset: CaseCacheDataset) -> None:
        super().__init__()
        self.dataset = dataset

    def find(self) -> Tensor:
        """The histogram."""
        return dataset_intensities(self.dataset)


def dataset_intensities(dataset: CaseCacheDataset) -> Tensor:
    """The histogram of a dataset's prepared images, (100,).

    Raises:
        DataError: as :func:`fedmed.data.intensities.histogram`.
    """
    return histogram(dataset.prepared(index)["image"] for index in range(len(dataset.data)))
