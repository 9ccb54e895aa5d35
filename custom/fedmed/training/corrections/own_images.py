"""Images of a site that are looked at to tell the other sites something of all of them, and what these make of it."""

from collections.abc import Callable, Iterator
from typing import ClassVar

from torch import Tensor

from fedmed.data.listed_images import plain, spread
from fedmed.training.corrections.correction import Correction, Images

OTHERS = "others"  # name under which a site gets what the others told
MOST = 500  # images that are looked at, evenly spread over the list


class OwnImages:
    """The site's training images, of which a subclass tells something.

    Args:
        images: ``[i]["image"]`` (C, ...) from 0 to 1; None at a site that never trains: those that it scores, once
            they are given to ``images``.

    Attributes:
        name: of what the other sites get.
    """

    name: ClassVar[str] = ""

    def __init__(self, images: Images | None) -> None:
        self.images: Images = () if images is None else images

    def __call__(self, before_batch: Callable[[], None] | None = None) -> dict[str, Tensor]:
        """Return ``name`` -> what :meth:`measure` makes of the images; ``{}`` without images."""
        return {self.name: self.measure(self.spread(before_batch))} if len(self.images) else {}

    def measure(self, images: Iterator[Tensor]) -> Tensor:
        """Return what is told of images (C, ...), at least one; DataError where they are not of the kind it needs."""
        raise NotImplementedError

    def spread(self, before_batch: Callable[[], None] | None = None) -> Iterator[Tensor]:
        """Give at most ``MOST`` of them, one by one; ``before_batch`` is called before each, and may raise to stop."""
        for place in spread(len(self.images), MOST).tolist():
            if before_batch is not None:
                before_batch()
            yield plain(self.images[place]["image"])


class MatchedImages(Correction):
    """Base of corrections that change images, in training and in scoring, by what the other sites told of theirs.

    It comes once; what a site makes of it is kept with its state.
    """

    takes = (OTHERS,)

    def change_scored_images(self, images: Tensor) -> Tensor:
        """As in training."""
        return self.change_images(images)
