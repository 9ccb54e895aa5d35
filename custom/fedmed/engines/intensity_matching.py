"""Images of a site without labels, as bright as those of the labelled sites."""

import logging
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedmed.data.cache import CaseCacheDataset
from fedmed.data.intensities import matching_gamma
from fedmed.engines.intensity_shares import dataset_intensities

log = logging.getLogger("fedmed.engines")


class IntensityMatching:
    """What a model of the labelled sites sees of this site's images: their intensities to the power of one gamma.

    Another scanner, or a shallower breath, makes lungs brighter than any the labelled sites have seen, and their model
    takes the brightness for disease. With it gone the same model makes better pseudo-labels, from which the student
    learns to read this site's images as they are. Ours; in the spirit of amplitude normalisation (HarmoFL, AAAI 2022).

    Args:
        dataset: the site's training cases; each has an ``image`` from 0 to 1. None: nothing is matched.
    """

    def __init__(self, dataset: CaseCacheDataset | None = None) -> None:
        self.dataset, self.gamma = dataset, 1.0
        self._own: Tensor | None = None

    def receive(self, wanted: Tensor) -> None:
        """Find the gamma that makes the site's images most like the labelled sites', a histogram (100,).

        Raises:
            DataError: the site's images are not from 0 to 1.
        """
        if self.dataset is None:
            return
        if self._own is None:
            self._own = dataset_intensities(self.dataset)
        self.gamma = matching_gamma(self._own, wanted.to(self._own))
        log.info("the labelled sites' mean sees this site's images with a gamma of %.2f", self.gamma)

    def __call__(self, images: Tensor) -> Tensor:
        """The images (B, C, ...), from 0 to 1, as the labelled sites' mean shall see them."""
        return images if self.gamma == 1 else images.clamp(0, 1) ** self.gamma

    def state_dict(self) -> dict[str, Any]:
        """The site's own histogram, for which all its images are read."""
        return {} if self._own is None else {"own": self._own}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self._own = state_dict.get("own")
