"""Gaussian summaries of a site's features (FedMoCo, Eq. 3 and 4)."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedmed.engines.representation import features
from fedmed.errors import FedMedError

log = logging.getLogger("fedmed.site")


def box_cox(z: Tensor, lam: float = 0.5) -> Tensor:
    """Eq. 3: ``(z^λ - 1) / λ``, in float64, which makes features nearly Gaussian.

    scipy's functions are two to five times slower.

    Args:
        z: features, at least 0, any shape.
        lam: λ > 0.

    Raises:
        FedMedError: a λ that is not positive, or a negative or non-finite feature.
    """
    _check_lambda(lam)
    z = z.double()
    if not bool(torch.isfinite(z).all()) or bool((z < 0).any()):
        raise FedMedError("Box-Cox needs finite features of at least 0; end the network with ReLU and normalisation")
    return (z.pow(lam) - 1) / lam


def inverse_box_cox(y: Tensor, lam: float = 0.5) -> Tensor:
    """``max(λ y + 1, 0)^(1 / λ)``, in float64: at least 0 and, drawn from a Gaussian, maybe above 1.

    Without the maximum, y below -1/λ would come back on the wrong branch: y = -3 as 0.25 instead of 0; scipy gives NaN.

    Raises:
        FedMedError: a λ that is not positive.
    """
    _check_lambda(lam)
    return (lam * y.double() + 1).clamp(min=0).pow(1 / lam)


def _check_lambda(lam: float) -> None:
    if not 0 < lam < math.inf:
        raise FedMedError(f"Box-Cox: λ is {lam}; features contain zeros, so use a positive number, such as 0.5")


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
        _check_lambda(box_cox)
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
                *(len(z), z.shape[1], needed),
            )
            return {}
        y = box_cox(z, self.box_cox)
        upper = torch.triu_indices(z.shape[1], z.shape[1])
        sigma = torch.cov(y.T).reshape(z.shape[1], z.shape[1])[upper[0], upper[1]]
        return {"mu": y.mean(dim=0).float(), "sigma": sigma.float(), "n": len(z)}
