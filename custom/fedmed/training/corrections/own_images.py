"""Images of a site that are looked at to tell the other sites something of all of them."""

from collections.abc import Callable, Iterator

from torch import Tensor

from fedmed.data.listed_images import plain, spread
from fedmed.training.corrections.correction import Images

OTHERS = "others"  # name under which a site gets what the others told
MOST = 500  # images that are looked at, evenly spread over the list


class OwnImages:
    """The site's training images, of which a subclass tells something.

    Args:
        images: ``[i]["image"]`` (C, ...) from 0 to 1; None at a site that never trains: those that it scores, once
            they are given to ``images``.
    """

    def __init__(self, images: Images | None) -> None:
        self.images: Images = () if images is None else images

    def spread(self, before_batch: Callable[[], None] | None = None) -> Iterator[Tensor]:
        """At most ``MOST`` of them, one by one; ``before_batch`` is called before each, and may raise to stop."""
        for place in spread(len(self.images), MOST).tolist():
            if before_batch is not None:
                before_batch()
            yield plain(self.images[place]["image"])
