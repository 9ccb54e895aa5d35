"""What a bundle's model says of a hospital's images: probabilities or masks, and how sure it is of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedmed.adapting.folder_images import FolderImages
from fedmed.data.cases import spread
from fedmed.training.called_classes import TOLERANCE, Called, called, classes_called, entropy
from fedmed.training.corrections.statistics import of_one_shape

MOST = {0: 500, 2: 60, 3: 8}  # images that are looked at, by the axes of what is said of one: classes, masks, volumes


@dataclass(frozen=True)
class Prediction:
    """What is said of one image.

    Attributes:
        place: of the image in its list.
        entropy, called: see :mod:`fedmed.training.called_classes`.
        values: probabilities (C,), or a mask (...) uint8 of the likeliest classes.
    """

    place: int
    entropy: float
    called: Tensor
    values: Tensor

    @property
    def is_mask(self) -> bool:
        """Whether it is one."""
        return self.values.dtype == torch.uint8


@dataclass(frozen=True)
class Predictions:
    """What is said of a list of images.

    Attributes:
        classes: names of the channels.
        several: whether classes may be there at once.
        each: at least one.
    """

    classes: tuple[str, ...]
    several: bool
    each: tuple[Prediction, ...]

    @property
    def called(self) -> Called:
        """All of them together."""
        return called((one.entropy, one.called) for one in self.each)

    def other_calls(self, after: "Predictions") -> float:
        """In what share of the images other classes are called than before, 0 to 1."""
        pairs = zip(self.each, after.each, strict=True)
        return sum(not torch.equal(old.called, new.called) for old, new in pairs) / len(self.each)


def predictions(images: FolderImages, network: Any) -> Predictions | None:
    """Let a bundle infer images, evenly spread over the list.

    Args:
        images: as the model is to see them.
        network: the bundle's.

    Returns:
        None where its outputs are not of classes, as those of a model that needs whole videos.
    """
    device = next(network.parameters()).device
    first = images.infer(images[0]["image"][None].to(device), network)[0]
    form = _form(first, images.classes)
    if form is None:
        return None
    names, several, logits = form
    places, found = spread(len(images), MOST[first.ndim - 1]).tolist(), list[Prediction]()
    for batch in of_one_shape(images[place]["image"] for place in places):
        outputs = images.infer(torch.stack(batch).to(device), network).float().cpu()
        for values in outputs.softmax(dim=1) if logits else outputs:
            said = values.argmax(dim=0).to(torch.uint8) if values.ndim > 1 else values
            place = places[len(found)]
            found.append(Prediction(place, entropy(values, several), classes_called(values, several), said))
    return Predictions(names, several, tuple(found))


def _form(output: Tensor, classes: Sequence[str]) -> tuple[tuple[str, ...], bool, bool] | None:
    """Names of the channels, whether several may be there at once, and whether the values are logits."""
    count = len(output)
    if classes and count not in (len(classes), len(classes) + 1):
        return None
    named = classes or [str(number) for number in range(count)]
    names = tuple(named) if count == len(named) else ("background", *named)
    if float(output.min()) < 0 or float(output.max()) > 1 + TOLERANCE:
        return names, False, True
    sums = bool(((output.sum(dim=0) - 1).abs() < TOLERANCE).all())
    return names, not sums, False
