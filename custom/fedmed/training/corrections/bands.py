"""Strength of the frequencies of a site's images, for the others, and images with that of the sites' mean."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.data.augment.bands import AMPLITUDES, BANDS, band_amplitudes, band_factors, with_factors
from fedmed.errors import FedMedError
from fedmed.training.corrections.correction import RoundStart
from fedmed.training.corrections.own_images import OTHERS, MatchedImages, OwnImages

log = logging.getLogger("fedmed.site")
ALIKE = 0.1  # where no factor is further from 1, a site's images are as those of the others already


class OwnBands(OwnImages):
    """The amplitudes of the site's training images, in bands of frequencies: what the other sites get."""

    name = AMPLITUDES

    def measure(self, images: Iterator[Tensor]) -> Tensor:
        """Return amplitudes, see :func:`band_amplitudes`."""
        return band_amplitudes(images)


class MatchedBands(MatchedImages):
    """Shows the network every image with its frequencies as strong as they are in the mean of all sites.

    After HarmoFL (Jiang, Wang and Dou, AAAI 2022, arXiv 2112.10775); what differs is said in
    :mod:`fedmed.data.augment.bands`.

    Args:
        own: of the site; called where the others' come.
        strength: see :func:`band_factors`.
    """

    def __init__(self, own: OwnBands, strength: float = 1.0) -> None:
        self.site_images, self.strength = own, strength
        self._factors: Tensor | None = None

    def begin(self, start: RoundStart) -> None:
        """Find the factors when the others' amplitudes have come.

        Raises:
            FedMedError: what came are not amplitudes, or of images with other colours.
            DataError: the site's own images are not from 0 to 1, or all of one intensity.
        """
        if OTHERS not in start.values and self._factors is not None:
            return
        others = [_checked(other) for other in start.values.get(OTHERS, ())]
        if not others:
            log.warning("no other site has told how strong its images' frequencies are; images stay as they are")
            self._factors = torch.ones(0)
            return
        local = self.site_images()[AMPLITUDES]
        if strange := [other for other in others if other.shape != local.shape]:
            raise FedMedError(
                f"another site's '{AMPLITUDES}' is of images with {len(strange[0]) // (1 + BANDS)} colours, and "
                f"this site's have {len(local) // (1 + BANDS)}"
            )
        factors = band_factors(local, torch.stack([local, *others]).mean(dim=0), self.strength)
        changes = bool(((factors - 1).abs() > ALIKE).any())
        self._factors = factors if changes else torch.ones(0)
        if changes:
            low, high = (float(end) for end in factors.aminmax())
            log.info("frequencies of images are shown to the model times %.2f to %.2f, as in all sites", low, high)

    def change_images(self, images: Tensor) -> Tensor:
        """Return images (B, C, ...) filtered; as they are where sites are alike."""
        return images if self._factors is None or not len(self._factors) else with_factors(images, self._factors)

    @classmethod
    def inference_settings(cls, state: Mapping[str, Any]) -> dict[str, list[list[float]]]:
        factors = state.get("factors")
        if factors is None or not len(factors):
            return {}
        return {"image_bands": [[round(number, 4) for number in colour] for colour in factors.tolist()]}

    def state_dict(self) -> dict[str, Any]:
        """Return the factors, (C, 1 + BANDS); none where images stay as they are."""
        return {} if self._factors is None else {"factors": self._factors}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._factors = state_dict.get("factors")


def _checked(other: Mapping[str, Any]) -> Tensor:
    values = other.get(AMPLITUDES) if isinstance(other, Mapping) else None
    fits = isinstance(values, Tensor) and values.ndim == 1 and len(values) > 0 and len(values) % (1 + BANDS) == 0
    # A site may have added noise to them.
    if values is None or not fits or not bool(((values >= -100) & (values <= 1000)).all()):
        raise FedMedError(
            f"another site's '{AMPLITUDES}' does not have {1 + BANDS} amplitudes for each colour; is FedMed the same?"
        )
    return values.detach().cpu().float()
