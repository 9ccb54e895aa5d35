"""Statistics of BatchNorm from a site's own images, in place of those of the model."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedmed.data.listed_images import spread
from fedmed.errors import DataError
from fedmed.training.corrections.correction import Correction, Images, Infer
from fedmed.training.corrections.own_images import MOST, OwnImages
from fedmed.training.label_counts import called_by, objection

LEAST_VARIANCE = 1e-12  # of all channels of a layer: images that are all alike
FEWEST = 2
LOOKED_AT = {2: 64, 3: 8}  # images, by their axes, of which it is seen what the model calls before and after
BATCH = 16  # images that are normalised together
log = logging.getLogger("fedmed.site")


@dataclass(frozen=True)
class LayerStatistics:
    """Mean and variance of a layer's input, per channel, (C,) float64 each.

    Attributes:
        came: with which the network came.
        seen: of the images in the network as it came.
        local: of the images where the layers before it normalise by the images too: those of the adapted network.
    """

    came: tuple[Tensor, Tensor]
    seen: tuple[Tensor, Tensor]
    local: tuple[Tensor, Tensor]

    @property
    def distance(self) -> float:
        """Distance of ``seen`` from ``came`` in deviations: root of the mean over channels of its square."""
        (mean, variance), (seen, _) = self.came, self.seen
        return float(((seen - mean).square() / variance.clamp_min(1e-5)).mean().sqrt())

    def mixed(self, share: float) -> tuple[Tensor, Tensor]:
        """Return mean and variance of which the images' own are a share, 0 to 1."""
        mean, variance = (share * local + (1 - share) * came for came, local in zip(self.came, self.local, strict=True))
        return mean, variance


def mean_distance(statistics: dict[str, LayerStatistics]) -> float:
    """Mean distance over at least one layer, of images from those that a network knows."""
    return sum(one.distance for one in statistics.values()) / len(statistics)


def normalisation_layers(network: nn.Module) -> dict[str, _BatchNorm]:
    """Return name -> each layer with running statistics."""
    layers = {name: one for name, one in network.named_modules() if isinstance(one, _BatchNorm)}
    return {name: one for name, one in layers.items() if one.running_mean is not None and one.running_var is not None}


@torch.no_grad()
def own_statistics(
    network: nn.Module, infer: Callable[[Tensor], Any], batches: Iterable[Tensor]
) -> dict[str, LayerStatistics]:
    """Measure each layer's statistics over a hospital's images; the network stays as it was.

    Args:
        network: on any device.
        infer: the network itself, or what shows it large images by windows.
        batches: of images (B, C, ...), without augmentation, on the network's device.

    Returns:
        Layer -> its statistics; empty where the network has no layer with statistics.

    Raises:
        DataError: there are no images, or all of them are alike.
    """
    layers = normalisation_layers(network)
    if not layers:
        return {}
    seen, adapted = ({name: [0, 0.0, 0.0] for name in layers} for _ in range(2))
    for images in batches:  # which are read only once
        for sums, by_batch in ((seen, False), (adapted, True)):
            with _looked_at(network, layers, sums, by_batch):
                infer(images)
    if not all(count for count, _, _ in adapted.values()):
        raise DataError("statistics of normalisation need images, and there are none")
    if any(float(_moments(sums)[1].max()) < LEAST_VARIANCE for sums in adapted.values()):
        raise DataError("statistics of normalisation need images that differ, and these are all alike")
    came = {name: (_kept(layer.running_mean), _kept(layer.running_var)) for name, layer in layers.items()}
    return {name: LayerStatistics(came[name], _moments(seen[name]), _moments(adapted[name])) for name in layers}


def _moments(sums: list[Any]) -> tuple[Tensor, Tensor]:
    count, total, squares = sums
    mean = total / count
    return mean, (squares / count - mean.square()).clamp_min(0)


@torch.no_grad()
def adapt(network: nn.Module, statistics: dict[str, LayerStatistics], images: int, prior: float = 0.0) -> None:
    """Write statistics of a hospital's images into a network.

    Args:
        network: that they were measured with.
        statistics: of :func:`own_statistics`.
        images: how many they are of; 0 writes those back with which the network came.
        prior: for how many images the latter count.
    """
    layers, share = normalisation_layers(network), images / (images + prior)
    for name, one in statistics.items():
        mean, variance = one.mixed(share)
        for buffer, value in ((layers[name].running_mean, mean), (layers[name].running_var, variance)):
            if buffer is not None:
                buffer.copy_(value)


@contextmanager
def for_inference(network: nn.Module) -> Iterator[None]:
    """Keep a network in its mode for inference; afterwards each of its modules is as before."""
    training = {one: one.training for one in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for one, was in training.items():
            one.training = was


@contextmanager
def _looked_at(
    network: nn.Module, layers: dict[str, _BatchNorm], sums: dict[str, list[Any]], by_batch: bool
) -> Iterator[None]:
    """Sum what goes into layers; all is as for inference, but ``by_batch`` they normalise by the batch."""
    momenta = {name: one.momentum for name, one in layers.items()}
    counted = {name: _kept(one.num_batches_tracked) for name, one in layers.items()}
    hooks = [one.register_forward_pre_hook(_adding(sums[name])) for name, one in layers.items()]
    try:
        with for_inference(network):
            for layer in layers.values() if by_batch else ():
                layer.train()
                layer.momentum = 0.0  # running statistics stay as they are
            yield
    finally:
        for hook in hooks:
            hook.remove()
        for name, layer in layers.items():
            layer.momentum = momenta[name]
            if layer.num_batches_tracked is not None:
                layer.num_batches_tracked.copy_(counted[name])


def _adding(sums: list[Any]) -> Any:
    def add(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        values = given[0].detach().double()
        around = [axis for axis in range(values.ndim) if axis != 1]
        sums[0] += values.numel() // values.shape[1]
        sums[1] = sums[1] + values.sum(around)
        sums[2] = sums[2] + values.square().sum(around)

    return add


def _kept(buffer: Tensor | None) -> Tensor:
    return torch.zeros(0, dtype=torch.float64) if buffer is None else buffer.detach().double().clone()


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
        self.site_images, self.prior, self.dead_zone, self.judged = own, prior, dead_zone, judged
        self._decision = ""

    @property
    def decision(self) -> str:
        """A sentence on whether the last model was changed, and why."""
        return self._decision

    def begin_scoring(self, images: Images, values: Mapping[str, Any]) -> None:
        """Take the images that are scored as the site's own."""
        self.site_images.images = images

    def change_network(self, network: nn.Module, infer: Infer, change_images: Callable[[Tensor], Tensor]) -> None:
        """Adapt a received model.

        Raises:
            DataError: the site has fewer than two images, or all are alike.
        """
        if not normalisation_layers(network):
            log.warning("the network has no BatchNorm layer, so there are no statistics to adapt; leave them out")
            return
        count = min(len(self.site_images.images), MOST)
        if count < FEWEST:
            raise DataError(
                f"statistics of normalisation need {FEWEST} images or more, and the site has {count}; leave "
                "'statistics' out of the study's 'adaptation'"
            )
        looked_at: list[Tensor] = []
        device = next(network.parameters()).device
        images = self._noting(looked_at) if self.judged else self.site_images.spread()
        batches = (change_images(torch.stack(some).to(device)) for some in of_one_shape(images))
        statistics = own_statistics(network, infer, batches)
        away = mean_distance(statistics)
        if away <= self.dead_zone:
            self._decision = f"the model keeps its statistics, from which features lie {away:.2g} deviations"
        else:
            shown = [change_images(torch.stack(some).to(device)) for some in of_one_shape(looked_at)]
            with for_inference(network):
                before = called_by(network, infer, shown) if shown else None
                adapt(network, statistics, count, self.prior)
                after = called_by(network, infer, shown) if before else None
            against = objection(before, after) if before and after else ""
            self._decision = f"the site's own statistics: features lie {away:.2g} deviations from the model's"
            if against:
                adapt(network, statistics, images=0, prior=1)
                self._decision = f"not {self._decision}, but {against}"
        log.info("%s", self._decision)

    def _noting(self, looked_at: list[Tensor]) -> Iterator[Tensor]:
        """Give the site's images; some of them, evenly spread, are noted."""
        chosen = set[int]()
        for number, image in enumerate(self.site_images.spread()):
            most = LOOKED_AT.get(image.ndim - 1, min(LOOKED_AT.values()))
            chosen = chosen or set(spread(min(len(self.site_images.images), MOST), most).tolist())
            looked_at += [image] if number in chosen else []
            yield image


def of_one_shape(images: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Give runs of images of one shape, at most :data:`BATCH` of them."""
    some: list[Tensor] = []
    for image in images:
        if some and (len(some) == BATCH or some[0].shape != image.shape):
            yield some
            some = []
        some.append(image)
    if some:
        yield some
