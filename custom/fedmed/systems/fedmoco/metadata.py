"""Statistics of a site's features, which it sends, and the negatives that other sites draw from them."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.networks.utils import eval_mode
from torch import Tensor, nn

from fedmed.errors import DataError, FedMedError
from fedmed.training.trainer import plain_batch

DECIMALS = 10  # of a dissimilarity: rounding errors that differ between machines must not decide the order of ties
log = logging.getLogger("fedmed.site")
REDRAWS = 10  # of rows that became zero
LARGEST = 1e6  # magnitude of a mean or covariance that is accepted; features of norm 1 give values below 1 / λ²


def features(
    network: nn.Module,
    batches: Iterable[Mapping[str, Any]],
    device: torch.device | str = "cpu",
    limit: int | None = None,
    before_batch: Callable[[], None] | None = None,
) -> Tensor:
    """Return the network's features of images, in eval mode, without gradient; no buffer changes.

    Args:
        network: gives (B, d).
        batches: dictionaries with ``image`` (B, C, H, W), not augmented.
        device: where to compute.
        limit: largest number of images; None = all.
        before_batch: called before each batch is loaded; may raise to stop.

    Returns:
        (n, d) float64, on the CPU.

    Raises:
        DataError: there is no image.
        FedMedError: the network does not give one row an image.
    """
    rows: list[Tensor] = []
    left, waiting = math.inf if limit is None else limit, iter(batches)
    with eval_mode(network):
        while left > 0:
            if before_batch is not None:
                before_batch()
            batch = next(waiting, None)
            if batch is None:
                break
            images, _ = plain_batch(batch, device, non_blocking=True)
            images = images[: min(left, len(images))]
            output = network(images)
            if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != len(images):
                shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
                raise FedMedError(
                    f"the network gives {shape} for {len(images)} images; contrastive training needs one row (B, d) an "
                    "image"
                )
            rows.append(output.cpu())
            left -= len(images)
    if not rows:
        raise DataError("there is no image to compute features of; list images under 'unlabeled' or 'training'")
    return torch.cat(rows).double()


def dissimilarity(rows: Tensor) -> Tensor:
    """Return ``1 - Pearson(f(x_i), f(x_j))`` of all pairs i > j: FedMoCo's RDM without its diagonal.

    scipy's ``pdist(rows, "correlation")`` gives NaN for a constant row.

    Args:
        rows: features (s, d), one row an image. A constant row has correlation 0 with every other.

    Returns:
        s (s - 1) / 2 values in [0, 2], float64, rounded to 1e-10; pairs (1,0), (2,0), (2,1), (3,0), ...

    Raises:
        FedMedError: other than two axes, or a feature that is not finite.
    """
    if rows.ndim != 2 or not bool(torch.isfinite(rows).all()):
        raise FedMedError(
            f"features of shape {tuple(rows.shape)} cannot be compared; they must be finite and of shape (s, d): the "
            "model has diverged, or its output is not one row an image"
        )
    rows = rows.detach().cpu().double()
    centred = rows - rows.mean(dim=1, keepdim=True)
    spread, size = rows.amax(dim=1) - rows.amin(dim=1), rows.abs().amax(dim=1)
    centred[spread <= 1e-12 * size] = 0  # constant but for rounding
    norm = centred.norm(dim=1, keepdim=True)
    unit = centred / norm.masked_fill(norm == 0, 1)
    lower = torch.tril_indices(len(rows), len(rows), offset=-1)
    return torch.round(1 - (unit @ unit.T)[lower[0], lower[1]].clamp(-1, 1), decimals=DECIMALS)


def view_of(network: nn.Module, batches: Sequence[Mapping[str, Any]], device: torch.device | str) -> Tensor:
    """Return how a network sees images: the :func:`dissimilarity` of their features; () without any image."""
    return dissimilarity(features(network, batches, device)) if batches else torch.zeros(0)


def similarity_of(before: Tensor, after: Tensor) -> float:
    """Return Spearman's correlation of two vectors of dissimilarities, FedMoCo's r_k, correct with ties.

    Ties get their average rank; r is Pearson's correlation of the ranks. Without ties it is the paper's Eq. 6,
    ``1 - 6 Σ d² / (n (n² - 1))``. Where all ranks of a vector are equal, no change can be measured:
    r is 1, where scipy's ``spearmanr`` gives NaN.

    Args:
        before, after: of the same images in the same order, from :func:`dissimilarity`.

    Returns:
        A number in [-1, 1], exactly 1 for equal vectors.

    Raises:
        FedMedError: the vectors have different lengths.
    """
    from scipy.stats import rankdata  # takes a second to load

    if before.shape != after.shape or before.ndim != 1:
        raise FedMedError(
            f"dissimilarities of shapes {tuple(before.shape)} and {tuple(after.shape)} cannot be compared; compute "
            "both of the same images"
        )
    first, second = (rankdata(values.numpy(), method="average") for values in (before, after))
    if len(first) < 2 or np.array_equal(first, second) or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 1.0
    return float(np.clip(np.corrcoef(first, second)[0, 1], -1.0, 1.0))


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


class SyntheticNegatives:
    """Draws features as other sites might have them: ``z̃ = BC⁻¹(ỹ)``, ``ỹ ~ N(μ_l, Σ_l)``, normalised (Eq. 5).

    Σ is singular where features are dead or there are few images, so ỹ is made from its eigenvectors, with eigenvalues
    below 0 taken as 0. A row that became zero is drawn again, at most ten times, and then stays zero: it is equally
    far from everything. All of it is computed on the CPU in float64: the same on every device.

    Args:
        others: ``{"mu": (d,), "sigma": (d (d + 1) / 2,)}`` of each other site, as :class:`FeatureMetadata` made them.
        count: draws from each.
        box_cox: λ that they were made with.
        generator: of the draws, on the CPU.

    Attributes:
        clamped_fraction: share of the last draw's numbers that lay below the range of Box-Cox. Much more than 0.01
            means that the transformed features are not Gaussian.
        zero_rows: rows of the last draw that stayed zero.

    Raises:
        FedMedError: statistics that do not fit each other, are too large to be possible, or are not finite.
    """

    def __init__(
        self,
        others: Sequence[Mapping[str, Tensor]],
        count: int,
        box_cox: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        if not others or count < 1:
            raise FedMedError(f"SyntheticNegatives: {count} draws of {len(others)} sites; both must be 1 or more")
        self.count, self.box_cox, self.generator = count, box_cox, generator
        self.clamped_fraction, self.zero_rows = 0.0, 0
        self.dim = len(_vector(others[0], "mu"))
        gaussians = [_gaussian(other, self.dim) for other in others]
        self._means = torch.stack([mean for mean, _ in gaussians])[:, None, :]
        self._roots = torch.stack([root for _, root in gaussians])

    def draw(self) -> Tensor:
        """Return fresh negatives (sites · count, d), float32, rows of norm 1, site by site."""
        y = self._gaussians()
        # A dead feature lies exactly at the lower edge; a rounding error below it does not count as clamping.
        low = (self.box_cox * y + 1) < -1e-6
        self.clamped_fraction = float(low.double().mean())
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
    sigma[rows, columns] = sigma[columns, rows] = upper
    values, vectors = torch.linalg.eigh(sigma)
    return mean, (vectors * values.clamp(min=0).sqrt()) @ vectors.T
