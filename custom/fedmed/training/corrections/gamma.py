"""Brightness of a site's images, for the others, and images nearer to the brightness of others."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.data.augment.intensities import BINS, INTENSITIES, histogram, matching_gamma
from fedmed.errors import FedMedError
from fedmed.training.corrections.correction import Images, RoundStart
from fedmed.training.corrections.own_images import OTHERS, MatchedImages, OwnImages

log = logging.getLogger("fedmed.site")
# Up to this gamma, or its inverse, images are as bright as others' already: it moves no intensity by more than 0.1, and
# random changes of brightness in training cover that. A gamma of 0.81 alone cost a synthetic hospital 0.05 Dice.
ALIKE = 1.3
# Of the way to others' brightness. A part of what makes lungs brighter is disease, or how a patient breathed, and not
# to be undone: on synthetic hospitals the whole way took more lesions away than it should, and half was near the best.
SHARE = 0.5


class OwnIntensities(OwnImages):
    """The histogram of the site's training images: what the other sites get."""

    name = INTENSITIES

    def measure(self, images: Iterator[Tensor]) -> Tensor:
        """Return the share of each bin, (100,), see :func:`fedmed.data.augment.intensities.histogram`."""
        return histogram(images)


class MatchedGamma(MatchedImages):
    """Shows the network every image nearer to the brightness of other sites: intensities to the power of a gamma.

    Another scanner, or a shallower breath, makes lungs brighter, and a model that has not seen that takes the
    brightness for disease. The gamma that makes this site's histogram most like the mean of the others' goes the whole
    way; its root, which is used, half of it (:data:`SHARE`). Ours; in the spirit of HarmoFL (AAAI 2022).

    Args:
        own: the site's histogram; called where the others' come.
    """

    def __init__(self, own: OwnIntensities) -> None:
        self.site_images = own
        self._gamma: float | None = None

    @property
    def decision(self) -> str:
        """A sentence on the gamma; empty before it is decided."""
        if self._gamma in (None, 1):
            return "" if self._gamma is None else "images stay as bright as they are"
        return f"images to the power of {self._gamma:.2f}, half of the way to the others' brightness"

    def begin(self, start: RoundStart) -> None:
        """Find the gamma when the others' histograms have come.

        Raises:
            FedMedError: what came is not a histogram.
            DataError: the site's own images are not from 0 to 1.
        """
        if OTHERS not in start.values and self._gamma is not None:
            return
        others = [_checked(other) for other in start.values.get(OTHERS, ())]
        local = self.site_images().get(INTENSITIES) if others else None
        if local is None:
            log.warning("no site has told how bright its images are; images stay as they are")
        whole = 1.0 if local is None else matching_gamma(local, torch.stack(others).mean(dim=0))
        self._gamma = 1.0 if 1 / ALIKE <= whole <= ALIKE else whole**SHARE
        if self._gamma != 1:
            way = "images are shown to the model to the power of %.2f, half of the way to the others' brightness (%.2f)"
            log.info(way, self._gamma, whole)
        elif whole != 1:
            log.info("images are nearly as bright as the others' (a gamma of %.2f) and stay as they are", whole)

    def begin_scoring(self, images: Images, values: Mapping[str, Any]) -> None:
        """Do as :meth:`begin` with the images that are scored."""
        self.site_images.images = images
        self.begin(RoundStart({}, values=values))

    def change_images(self, images: Tensor) -> Tensor:
        """Return images (B, C, ...), from 0 to 1, brighter or darker; as they are where sites are alike."""
        return images if self._gamma in (None, 1) else images.clamp(0, 1) ** self._gamma

    @classmethod
    def inference_settings(cls, state: Mapping[str, Any]) -> dict[str, float]:
        gamma = state.get("gamma", 1.0)
        return {} if gamma == 1 else {"image_gamma": gamma}

    def state_dict(self) -> dict[str, Any]:
        return {} if self._gamma is None else {"gamma": self._gamma}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._gamma = state_dict.get("gamma")


def _checked(other: Mapping[str, Any]) -> Tensor:
    values = other.get(INTENSITIES) if isinstance(other, Mapping) else None
    # A site may have added noise to its histogram.
    fits = isinstance(values, Tensor) and values.shape == (BINS,) and bool(((values >= -1) & (values <= 2)).all())
    if values is None or not fits:
        raise FedMedError(f"another site's '{INTENSITIES}' is not a histogram of {BINS} numbers; is FedMed the same?")
    return values.detach().cpu().float()
