"""Gaussian summaries of a site's features (FedMoCo, Eq. 4)."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedmed.engines.box_cox import box_cox
from fedmed.engines.representation import features
from fedmed.errors import FedMedError

log = logging.getLogger("fedmed.site")


class FeatureMetadata:
    """Mean and covariance of a site's Box-Cox transformed features (Eq. 4), which FedMoCo's sites exchange.

    They are statistics over all images, not features of single ones; still they come from patients, so a site must
    allow them, and a site with too few images sends none.

    Args:
        network: the received model; gives features (B, d), at least 0.
        loader: batches ``{"image": (B, C, H, W)}``, not augmented.
        box_cox: λ > 0.
        min_images: fewer give nothing; default: 2 d.
        max_images: largest number of images that are used.
        device: where to compute.

    Raises:
        FedMedError: λ is not positive, or a number of images below 2.
    """

    def __init__(
        self,
        network: nn.Module,
        loader: Iterable[Mapping[str, Any]],
        box_cox: float = 0.5,
        min_images: int | None = None,
        max_images: int = 10_000,
        device: torch.device | str = "cpu",
    ) -> None:
        if not box_cox > 0:
            raise FedMedError(
                f"FeatureMetadata: box_cox is {box_cox}; features contain zeros, so use λ > 0, such as 0.5"
            )
        if max_images < 2 or (min_images is not None and min_images < 2):
            raise FedMedError(
                f"FeatureMetadata: min_images is {min_images} and max_images is {max_images}; a covariance needs at "
                "least 2 images"
            )
        self.network, self.loader, self.device = network.to(device), loader, device
        self.box_cox, self.min_images, self.max_images = box_cox, min_images, max_images

    def __call__(self, before_batch: Callable[[], None] | None = None) -> dict[str, Tensor | int]:
        """Return what leaves the site, ``{}`` when it has too few images.

        Args:
            before_batch: called before each batch; may raise to stop.

        Returns:
            ``mu`` (d,) and ``sigma``, the upper triangle with the diagonal, (d (d + 1) / 2,), row by row, float32,
            with n - 1 in the denominator; ``n``, the number of images.

        Raises:
            FedMedError: a feature is negative or not finite.
        """
        z = features(self.network, self.loader, self.device, self.max_images, before_batch)
        needed = 2 * z.shape[1] if self.min_images is None else self.min_images
        if len(z) < needed:
            log.warning(
                "no feature statistics are sent: %d images, but a covariance of %d features needs %d or more; add "
                "images or leave metadata to larger sites",
                len(z),
                z.shape[1],
                needed,
            )
            return {}
        y = box_cox(z, self.box_cox)
        upper = torch.triu_indices(z.shape[1], z.shape[1])
        sigma = torch.cov(y.T).reshape(z.shape[1], z.shape[1])[upper[0], upper[1]]
        return {"mu": y.mean(dim=0).float(), "sigma": sigma.float(), "n": len(z)}
