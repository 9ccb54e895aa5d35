"""BatchNorm's statistics of a site's own images, wherever it scores a model."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedmed.data.cases import spread
from fedmed.errors import DataError
from fedmed.training.called_classes import called_by, objection
from fedmed.training.corrections.correction import Correction, Images, Infer
from fedmed.training.corrections.own_images import MOST, OwnImages
from fedmed.training.own_normalisation import (
    LayerStatistics,
    adapt,
    for_inference,
    mean_distance,
    normalisation_layers,
    own_statistics,
    restore,
)

FEWEST = 2
LOOKED_AT = {2: 64, 3: 8}  # images, by their axes, of which it is seen what the model calls before and after
BATCH = 16  # images that are normalised together
log = logging.getLogger("fedmed.site")


class OwnStatistics(Correction):
    """Scores every model with the mean and variance of this site's images in its BatchNorm layers (AdaBN).

    A site stays as it is whose features lie as the model knows them; where the model would call one class alone
    afterwards, or be clearly less sure; and where the network has no such layers.

    Args:
        own: the site's images.
        prior: for how many images the statistics that came with the model count.
        dead_zone: mean distance of the layers, in deviations, up to which images are those that the model knows, and a
            small sample's statistics are no better than a large one's.
        judged: whether what the model calls may speak against it.
    """

    def __init__(self, own: OwnImages, prior: float = 16.0, dead_zone: float = 0.25, judged: bool = True) -> None:
        self.own, self.prior, self.dead_zone, self.judged = own, prior, dead_zone, judged
        self._decision = ""

    @property
    def decision(self) -> str:
        """Whether the last model was changed, and why."""
        return self._decision

    def begin_scoring(self, images: Images, values: Mapping[str, Any]) -> None:
        """Take the images that are scored as the site's own."""
        self.own.images = images

    def change_network(self, network: nn.Module, infer: Infer, change_images: Callable[[Tensor], Tensor]) -> None:
        """Adapt a received model.

        Raises:
            DataError: the site has fewer than two images, or all are alike.
        """
        if not normalisation_layers(network):
            log.warning("the network has no BatchNorm layer, so there are no statistics to adapt; leave them out")
            return
        count = min(len(self.own.images), MOST)
        if count < FEWEST:
            raise DataError(
                f"statistics of normalisation need {FEWEST} images or more, and the site has {count}; leave "
                "'statistics' out of the study's 'adaptation'"
            )
        looked_at: list[Tensor] = []
        device = next(network.parameters()).device
        images = self._noting(looked_at) if self.judged else self.own.spread()
        batches = (change_images(torch.stack(some).to(device)) for some in of_one_shape(images))
        statistics = own_statistics(network, infer, batches)
        away = mean_distance(statistics)
        if away <= self.dead_zone:
            self._decision = f"the model keeps its statistics, from which features lie {away:.2g} deviations"
        else:
            shown = [change_images(torch.stack(some).to(device)) for some in of_one_shape(looked_at)]
            against = self._adapted(network, infer, statistics, count, shown)
            lie = f"features lie {away:.2g} deviations from the model's"
            self._decision = f"the site's own statistics: {lie}"
            if against:
                self._decision = f"not the site's own statistics: {lie}, but {against}"
        log.info("%s", self._decision)

    def _noting(self, looked_at: list[Tensor]) -> Iterator[Tensor]:
        """The site's images; some of them, evenly spread, are noted."""
        chosen = set[int]()
        for number, image in enumerate(self.own.spread()):
            most = LOOKED_AT.get(image.ndim - 1, min(LOOKED_AT.values()))
            chosen = chosen or set(spread(min(len(self.own.images), MOST), most).tolist())
            looked_at += [image] if number in chosen else []
            yield image

    def _adapted(
        self,
        network: nn.Module,
        infer: Infer,
        statistics: dict[str, LayerStatistics],
        count: int,
        shown: list[Tensor],
    ) -> str:
        """Adapt the network, unless what it then calls of some batches speaks against it, which is returned."""
        with for_inference(network):
            before = called_by(network, infer, shown) if shown else None
            adapt(network, statistics, count, self.prior)
            after = called_by(network, infer, shown) if before else None
        against = objection(before, after) if before and after else ""
        if against:
            restore(network, statistics)
        return against


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
