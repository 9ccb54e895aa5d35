"""The batches of momentum contrast: the images that its two views start from, and whether they fill its queue."""

import logging

from torch import Tensor

from fedmed.errors import FedMedError

log = logging.getLogger("fedmed.site")


def view_sources(images: Tensor) -> tuple[Tensor, Tensor]:
    """The images that the two views of a batch start from: (B, C, H, W) each.

    Args:
        images: (B, 2, C, H, W), two views that the loader made, or (B, C, H, W), from which both start.

    Raises:
        FedMedError: another shape.
    """
    if images.ndim == 4:
        return images, images
    if images.ndim == 5 and images.shape[1] == 2:
        return images[:, 0], images[:, 1]
    raise FedMedError(
        f"MomentumContrastEngine: a batch of images has shape {tuple(images.shape)}; the loader must give "
        "(B, 2, C, H, W) or (B, C, H, W)"
    )


def compare_with_round(queue_size: int, steps: int, batch_size: int) -> None:
    """Warn of a queue that will hold keys made by the models of earlier rounds.

    Args:
        queue_size: N.
        steps: iterations of a round.
        batch_size: keys that each step makes.
    """
    made = steps * batch_size
    if queue_size > made:
        log.warning(
            "the queue has %d keys, but a round makes only %d (%d steps of %d images): the others come from models "
            "of earlier rounds, and telling models apart instead of images may make all features alike. Set "
            "queue_size to %d or less or key_policy to refill, or train more epochs a round",
            *(queue_size, made, steps, batch_size, made),
        )
