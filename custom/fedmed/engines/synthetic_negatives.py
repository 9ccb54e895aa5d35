"""Negatives drawn from other sites' feature statistics (FedMoCo, Eq. 5)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fedmed.engines.feature_metadata import inverse_box_cox
from fedmed.errors import FedMedError

REDRAWS = 10  # of rows that became zero
LARGEST = 1e6  # magnitude of a mean or covariance that is accepted; features of norm 1 give values below 1 / λ²


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
