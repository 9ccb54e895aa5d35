"""The transform that makes features nearly Gaussian, and its inverse (FedMoCo, Eq. 3).

scipy's ``inv_boxcox`` gives NaN below -1/λ instead of 0; both of its functions are two to five times slower.
"""

import torch
from torch import Tensor

from fedmed.errors import FedMedError


def box_cox(z: Tensor, lam: float = 0.5) -> Tensor:
    """Eq. 3: ``(z^λ - 1) / λ``, for λ = 0 ``log z``, in float64.

    Args:
        z: features, at least 0, any shape.
        lam: λ >= 0.

    Raises:
        FedMedError: a negative λ, or a negative (for λ = 0 also a zero) or non-finite feature.
    """
    check_lambda(lam)
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
    check_lambda(lam)
    y = y.double()
    return y.exp() if lam == 0 else (lam * y + 1).clamp(min=0).pow(1 / lam)


def check_lambda(lam: float) -> None:
    """Refuse a λ that is negative, infinite or NaN, with a FedMedError."""
    if not 0 <= lam < float("inf"):
        raise FedMedError(f"Box-Cox: λ is {lam}; use a number of at least 0, such as 0.5")
