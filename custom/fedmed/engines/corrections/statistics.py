"""BatchNorm's statistics of a site's own images, wherever it scores a model."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedmed.engines.corrections.own_images import MOST, OwnImages
from fedmed.engines.gradient_correction import Correction, Images, Infer
from fedmed.engines.own_normalisation import adapt, mean_distance, normalisation_layers, own_statistics
from fedmed.errors import DataError

FEWEST = 2
log = logging.getLogger("fedmed.site")
BATCH = 16  # images that are normalised together


class OwnStatistics(Correction):
    """Scores every model with the mean and variance of this site's images in its BatchNorm layers (AdaBN).

    A site whose features lie as the model knows them, or a network without such layers, stays as it is.

    Args:
        own: the site's images.
        prior: for how many images the statistics that came with the model count.
        dead_zone: mean distance of the layers, in deviations, up to which images are those that the model knows, and a
            small sample's statistics are no better than a large one's.
    """

    def __init__(self, own: OwnImages, prior: float = 16.0, dead_zone: float = 0.25) -> None:
        self.own, self.prior, self.dead_zone = own, prior, dead_zone
        self._decision = ""

    @property
    def decision(self) -> str:
        """Whether the last model was changed."""
        return self._decision

    def begin_scoring(self, images: Images, values: Mapping[str, Any]) -> None:
        """Take the images that are scored as the site's own."""
        self.own.images = images

    def change_network(self, network: nn.Module, infer: Infer, change_images: Callable[[Tensor], Tensor]) -> None:
        """Adapt a received model.

        Raises:
            DataError: the site has fewer than two images, or all are alike.
        """
        device, count = next(network.parameters()).device, min(len(self.own.images), MOST)
        if not normalisation_layers(network):
            log.warning("the network has no BatchNorm layer, so there are no statistics to adapt; leave them out")
            return
        if count < FEWEST:
            raise DataError(
                f"statistics of normalisation need {FEWEST} images or more, and the site has {count}; leave "
                "'statistics' out of the study's 'adaptation'"
            )
        batches = (change_images(torch.stack(some).to(device)) for some in of_one_shape(self.own.spread()))
        statistics = own_statistics(network, infer, batches)
        away = mean_distance(statistics)
        if away <= self.dead_zone:
            self._decision = f"the model keeps its statistics, from which features lie {away:.2g} deviations"
            log.info("%s", self._decision)
            return
        adapt(network, statistics, count, self.prior)
        self._decision = f"the site's own statistics: features lie {away:.2g} deviations from the model's"
        log.info("the model is scored with %s", self._decision)


def of_one_shape(images: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Runs of images of one shape, at most :data:`BATCH` of them."""
    some: list[Tensor] = []
    for image in images:
        if some and (len(some) == BATCH or some[0].shape != image.shape):
            yield some
            some = []
        some.append(image)
    if some:
        yield some
