"""How bright a site's images are, for the others, and images as bright as those of the others."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.data.augment.intensities import BINS, INTENSITIES, histogram, matching_gamma
from fedmed.data.spread import spread
from fedmed.engines.corrections.amplitude import OTHERS, Images
from fedmed.engines.gradient_correction import Correction, RoundStart
from fedmed.errors import FedMedError
from fedmed.seeds import derive_seed

log = logging.getLogger("fedmed.site")
MOST = 500  # images that are looked at, evenly spread over the list
ALIKE = 1.1  # up to this gamma, or its inverse, two sites' images are as bright as each other


class OwnIntensities:
    """The histogram of the site's training images: what the other sites get.

    Args:
        images: the training images, ``[i]["image"]`` from 0 to 1.
    """

    def __init__(self, images: Images) -> None:
        self.images = images

    def __call__(self, before_batch: Callable[[], None] | None = None) -> dict[str, Tensor]:
        """Return ``intensity_shares``, (100,); ``{}`` without images.

        Args:
            before_batch: called before each image; may raise to stop.

        Raises:
            DataError: as :func:`fedmed.data.augment.intensities.histogram`.
        """

        def image(place: int) -> Tensor:
            if before_batch is not None:
                before_batch()
            found: Tensor = self.images[place]["image"]
            return found

        places = spread(len(self.images), MOST).tolist()
        return {INTENSITIES: histogram(map(image, places))} if places else {}


class MatchedGamma(Correction):
    """Shows the network some images of a batch as bright as another site's: intensities to the power of a gamma.

    Another scanner, or a shallower breath, makes lungs brighter, and a model that has not seen that takes the
    brightness for disease. The gamma for a site is the one that makes this site's histogram most like its; sites whose
    images are about as bright as this one's are left out. The histograms come once; the gammas are kept with the site's
    state. Ours; in the spirit of amplitude normalisation (HarmoFL, AAAI 2022).

    Args:
        own: the site's histogram; called where the others' come.
        share: of a batch's images, 0 to 1, that are changed; each like a random one of the other sites.
        seed: of the draws of a round, which are made on the CPU: the same on every device.
    """

    takes = (OTHERS,)

    def __init__(self, own: OwnIntensities, share: float = 0.5, seed: int = 0) -> None:
        self.own, self.share = own, share
        self.generator = torch.Generator().manual_seed(derive_seed(seed, "gammas"))
        self._gammas: list[float] | None = None

    def begin(self, start: RoundStart) -> None:
        """Find the gammas when the others' histograms have come.

        Raises:
            FedMedError: what came is not a histogram.
            DataError: the site's own images are not from 0 to 1.
        """
        if OTHERS not in start.values and self._gammas is not None:
            return
        others = [_checked(other) for other in start.values.get(OTHERS, ())]
        if not others:
            log.warning("no site has told how bright its images are; images stay as they are")
        own = self.own().get(INTENSITIES) if others else None
        found = [] if own is None else [matching_gamma(own, other) for other in others]
        self._gammas = [gamma for gamma in found if not 1 / ALIKE < gamma < ALIKE]
        if found:
            shown = ", ".join(f"{gamma:.2f}" for gamma in found)
            log.info("gammas that make this site's images as bright as those of each other site: %s", shown)

    def change_images(self, images: Tensor) -> Tensor:
        """The images (B, C, ...), from 0 to 1, some of them brighter or darker; as they are where sites are alike."""
        if not self._gammas:
            return images
        chosen = torch.tensor(self._gammas)[torch.randint(len(self._gammas), (len(images),), generator=self.generator)]
        changed = torch.rand(len(images), generator=self.generator) < self.share
        powers = torch.where(changed, chosen, torch.ones(())).to(images).view(-1, *[1] * (images.ndim - 1))
        return images.clamp(0, 1) ** powers

    def state_dict(self) -> dict[str, Any]:
        """The gammas."""
        return {} if self._gammas is None else {"gammas": list(self._gammas)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self._gammas = state_dict.get("gammas")


def _checked(other: Mapping[str, Any]) -> Tensor:
    values = other.get(INTENSITIES) if isinstance(other, Mapping) else None
    # A site may have added noise to its histogram.
    fits = isinstance(values, Tensor) and values.shape == (BINS,) and bool(((values >= -1) & (values <= 2)).all())
    if values is None or not fits:
        raise FedMedError(f"another site's '{INTENSITIES}' is not a histogram of {BINS} numbers; is FedMed the same?")
    return values.detach().cpu().float()
