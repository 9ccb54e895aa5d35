"""Colours of a site's images, for the others, and images in the colours of others."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.data.augment.colours import COLOURS, Colours, colours, distance, mean_of, transfer
from fedmed.errors import FedMedError
from fedmed.training.corrections.correction import Images, RoundStart
from fedmed.training.corrections.own_images import OTHERS, MatchedImages, OwnImages

log = logging.getLogger("fedmed.site")
# Up to this distance a site's colours are others' already: about as far as one of their own images lies from another.
ALIKE = 1.0


class OwnColours(OwnImages):
    """Mean and deviation of the channels of the site's training images: what the other sites get."""

    name = COLOURS

    def measure(self, images: Iterator[Tensor]) -> Tensor:
        """Return colours (9,), see :class:`fedmed.data.augment.colours.Colours`."""
        return colours(images).stacked().flatten()


class MatchedColours(MatchedImages):
    """Shows the network every image in the colours of other sites (Reinhard et al. 2001), one transfer for a site.

    A site whose colours lie as near to others' as one of their images to another (:data:`ALIKE`) leaves its images as
    they are.

    Args:
        own: the site's colours; called where the others' come.
    """

    def __init__(self, own: OwnColours) -> None:
        self.site_images = own
        self._pair: tuple[Colours, Colours] | None = None  # own, wanted
        self._decided = False

    @property
    def decision(self) -> str:
        """A sentence on whether images are moved; empty before it is decided."""
        if self._pair is None:
            return "images keep their colours" if self._decided else ""
        away = distance(*self._pair)
        return f"images in the colours of the others, {away:.2g} times as far off as one image from another"

    def begin(self, start: RoundStart) -> None:
        """Decide when the others' colours have come.

        Raises:
            FedMedError: what came are not colours.
            DataError: the site's own images are not from 0 to 1, or all of one colour.
        """
        if OTHERS not in start.values and self._decided:
            return
        self._decided, self._pair = True, None
        others = [_checked(other) for other in start.values.get(OTHERS, ())]
        local = self.site_images().get(COLOURS) if others else None
        if local is None:
            log.warning("no site has told the colours of its images; images stay as they are")
            return
        pair = Colours.of(local.view(3, 3)), mean_of(others)
        away = distance(*pair)
        if away > ALIKE:
            self._pair = pair
            said = "images are shown to the model in the colours of the others"
        else:
            said = "images have the colours of the others and stay as they are"
        log.info("%s: they lie %.2g times as far from them as one image from another", said, away)

    def begin_scoring(self, images: Images, values: Mapping[str, Any]) -> None:
        """Do as :meth:`begin` with the images that are scored."""
        self.site_images.images = images
        self.begin(RoundStart({}, values=values))

    def change_images(self, images: Tensor) -> Tensor:
        """Return images (B, 3 · frames, H, W), from 0 to 1, in others' colours; as they are where sites are alike."""
        return images if self._pair is None else transfer(images, *self._pair)

    @classmethod
    def inference_settings(cls, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``image_colours``: own and wanted mean and deviation of l, α and β, (2, 2, 3) numbers."""
        pair = state.get("colours")
        return {} if pair is None else {"image_colours": pair[:, :2].tolist()}

    def state_dict(self) -> dict[str, Any]:
        if self._pair is None:
            return {"decided": self._decided}
        return {"decided": True, "colours": torch.stack([one.stacked() for one in self._pair])}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._decided = bool(state_dict.get("decided"))
        pair = state_dict.get("colours")
        self._pair = None if pair is None else (Colours.of(pair[0]), Colours.of(pair[1]))


def _checked(other: Mapping[str, Any]) -> Colours:
    values = other.get(COLOURS) if isinstance(other, Mapping) else None
    # lαβ of RGB from 0 to 1 lies within ±5, and a site may have added noise.
    if isinstance(values, Tensor) and values.shape == (9,) and bool((values.abs() <= 10).all()):
        return Colours.of(values.view(3, 3))
    raise FedMedError(f"another site's '{COLOURS}' are not nine numbers of colours; is FedMed the same?")
