"""Gaussian summaries of a site's features, and negatives drawn from those of others (FedMoCo, Eq. 3-5)."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedmed.engines.representation import features
from fedmed.errors import FedMedError

log = logging.getLogger("fedmed.site")

REDRAWS = 10  # of rows that became zero
LARGEST = 1e6  # of a mean or covariance that is taken seriously; features of norm 1 give values below 1 / λ²


def box_cox(z: Tensor, lam: float = 0.5) -> Tensor:
    """Eq. 3: ``(z^λ - 1) / λ``, for λ = 0 ``log z``, in float64.

    Args:
        z: features, at least 0, any shape.
        lam: λ >= 0.

    Raises:
        FedMedError: a negative λ, or a negative (for λ = 0 also a zero) or non-finite feature.
    """
    _check_lambda(lam)
    z = z.double()
    if not bool(torch.isfinite(z).all()) or bool((z < 0).any()) or (lam == 0 and bool((z == 0).any())):
        raise FedMedError(
            f"Box-Cox with λ = {lam} needs finite features {'above' if lam == 0 else 'of at least'} 0; end the network "
            "with ReLU and normalisation" + (", or use λ = 0.5" if lam == 0 else "")
        )
    return z.log() if lam == 0 else (z.pow(lam) - 1) / lam


def inverse_box_cox(y: Tensor, lam: float = 0.5) -> Tensor:
    """``max(λ y + 1, 0)^(1 / λ)``, for λ = 0 ``e^y``, in float64: at least 0 and, drawn from a Gaussian, maybe above 1.

    Without the maximum, y below -1/λ would come back on the wrong branch: y = -3 as 0.25 instead of 0.

    Raises:
        FedMedError: a negative λ.
    """
    _check_lambda(lam)
    y = y.double()
    return y.exp() if lam == 0 else (lam * y + 1).clamp(min=0).pow(1 / lam)


class FeatureMetadata:
    """Mean and covariance of a site's Box-Cox transformed features (Eq. 4): what FedMoCo's sites tell each other.

    They are statistics over all images, no features of single ones; still they come from patients, so a site must
    allow them, and too few images make none.

    Args:
        network: the received model; gives features (B, d), at least 0.
        loader: batches ``{"image": (B, C, H, W)}``, not augmented.
        box_cox: λ > 0.
        min_images: fewer give nothing; default: 2 d.
        max_images: images that are looked at, at most.
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


class SyntheticNegatives:
    """Draws features as other sites might have them: ``z̃ = BC⁻¹(ỹ)``, ``ỹ ~ N(μ_l, Σ_l)``, normalised (Eq. 5).

    Σ is singular where features are dead or images few, so ỹ is made from its eigenvectors, with eigenvalues below 0
    taken as 0. A row that became zero is drawn again, at most ten times, and otherwise stays zero: it is equally far
    from everything. All of it happens on the CPU in float64: the same on every device.

    Args:
        others: ``{"mu": (d,), "sigma": (d (d + 1) / 2,)}`` of each other site, as :class:`FeatureMetadata` made them.
        count: draws from each.
        box_cox: λ that they were made with.
        generator: of the draws, on the CPU.

    Attributes:
        clamped_fraction: share of the last draw's numbers that lay below the reach of Box-Cox. Much more than 0.01
            says that the features are not Gaussian after it.
        zero_rows: rows of the last draw that stayed zero.

    Raises:
        FedMedError: statistics that do not fit each other or are absurdly large or no numbers.
    """

    def __init__(
        self,
        others: Sequence[Mapping[str, Tensor]],
        count: int,
        box_cox: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        _check_lambda(box_cox)
        if not others or count < 1:
            raise FedMedError(f"SyntheticNegatives: {count} draws of {len(others)} sites; both must be 1 or more")
        self.count, self.box_cox, self.generator = count, box_cox, generator
        self.clamped_fraction, self.zero_rows = 0.0, 0
        dim = len(_vector(others[0], "mu"))
        gaussians = [_gaussian(other, dim) for other in others]
        self.dim = len(gaussians[0][0])
        self._means = torch.stack([mean for mean, _ in gaussians])[:, None, :]
        self._roots = torch.stack([root for _, root in gaussians])

    def draw(self) -> Tensor:
        """Return fresh negatives (sites · count, d), float32, rows of norm 1, site by site."""
        y = self._gaussians()
        # A dead feature is exactly at the edge; rounding beyond it is no clamping.
        low = (self.box_cox * y + 1) < -1e-6
        self.clamped_fraction = float(low.double().mean()) if self.box_cox else 0.0
        z = inverse_box_cox(y, self.box_cox)
        for _ in range(REDRAWS):
            zero = z.amax(dim=2) <= 0
            if not bool(zero.any()):
                break
            z[zero] = inverse_box_cox(self._gaussians(), self.box_cox)[zero]
        self.zero_rows = int((z.amax(dim=2) <= 0).sum())
        return nn.functional.normalize(z.flatten(0, 1), dim=1, eps=1e-12).float()

    def _gaussians(self) -> Tensor:
        """ỹ: (sites, count, d)."""
        normal = torch.randn(len(self._roots), self.count, self.dim, generator=self.generator, dtype=torch.float64)
        return self._means + normal @ self._roots


def _vector(other: Mapping[str, Tensor], name: str) -> Tensor:
    """A vector of another site's statistics, float64 on the CPU."""
    value = other.get(name) if isinstance(other, Mapping) else None
    if not isinstance(value, Tensor) or value.ndim != 1 or not value.is_floating_point():
        raise FedMedError(
            f"feature statistics of another site hold no vector '{name}'; the job must exchange mu and sigma, and the "
            "server must use the same FedMed"
        )
    return value.detach().cpu().double()


def _gaussian(other: Mapping[str, Tensor], dim: int) -> tuple[Tensor, Tensor]:
    """Mean (d,) and the symmetric root of Σ (d, d), float64; the root is unique, unlike a choice of eigenvectors."""
    mean, upper = (_vector(other, name) for name in ("mu", "sigma"))
    if mean.shape != (dim,) or upper.shape != (dim * (dim + 1) // 2,):
        raise FedMedError(
            f"feature statistics of another site have shapes {tuple(mean.shape)} and {tuple(upper.shape)}; {dim} "
            f"features need ({dim},) and ({dim * (dim + 1) // 2},)"
        )
    if not bool((torch.cat([mean, upper]).abs() <= LARGEST).all()):
        raise FedMedError(
            "feature statistics of another site contain NaN, infinity or values above 1e6; nothing is drawn from them. "
            "Ask the server to leave that site's metadata out"
        )
    rows, columns = torch.triu_indices(dim, dim)
    sigma = torch.zeros(dim, dim, dtype=torch.float64)
    sigma[rows, columns] = upper
    sigma[columns, rows] = upper
    values, vectors = torch.linalg.eigh(sigma)
    return mean, (vectors * values.clamp(min=0).sqrt()) @ vectors.T


def _check_lambda(lam: float) -> None:
    if not 0 <= lam < float("inf"):
        raise FedMedError(f"Box-Cox: λ is {lam}; use a number of at least 0, such as 0.5")
