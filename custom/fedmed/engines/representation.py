"""How much training changed a network's view of images: representational similarity (Kriegeskorte et al. 2008)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.networks.utils import eval_mode
from scipy.stats import rankdata
from torch import Tensor, nn

from fedmed.engines.trainer import plain_batch
from fedmed.errors import DataError, FedMedError

DECIMALS = 10  # of a dissimilarity: rounding errors that differ between machines must not decide the order of ties


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
            rows.append(_rows(network(images), images).cpu())
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
    """How a network sees images: the :func:`dissimilarity` of their features; () without any image."""
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
    if before.shape != after.shape or before.ndim != 1:
        raise FedMedError(
            f"dissimilarities of shapes {tuple(before.shape)} and {tuple(after.shape)} cannot be compared; compute "
            "both of the same images"
        )
    first, second = (rankdata(values.numpy(), method="average") for values in (before, after))
    if len(first) < 2 or np.array_equal(first, second) or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 1.0
    return float(np.clip(np.corrcoef(first, second)[0, 1], -1.0, 1.0))


def _rows(output: Any, images: Tensor) -> Tensor:
    if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != len(images):
        found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise FedMedError(
            f"the network gives {found} for {len(images)} images; contrastive training needs one row (B, d) an image"
        )
    return output
