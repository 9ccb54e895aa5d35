"""Features of a class and their means, the class's prototype (FedAS: Yang, Huang, Ye, CVPR 2024)."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from fedmed.errors import FedMedError

TRACE = "fim_trace"  # the trace of a site's Fisher information, as it is sent


def features_by_place(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the features of every place that has a class, (N, D), and these classes, (N,) int64.

    Args:
        features: of images (B, D), or maps (B, D, h, w, ...).
        labels: whole numbers, (B,); of maps (B, H, W, ...) or (B, 1, H, W, ...) of any size: each place of a map gets
            the class of the pixel at its middle. Places below 0 are left out.

    Raises:
        FedMedError: labels that are not one class an image, or a pixel, of these features.
    """
    labels = labels[:, 0] if labels.ndim == features.ndim and labels.shape[1:2] == (1,) else labels
    if labels.is_floating_point() or labels.ndim != features.ndim - 1 or len(labels) != len(features):
        raise FedMedError(
            f"features {tuple(features.shape)} and labels {tuple(labels.shape)} of {labels.dtype}: a prototype needs "
            "one class, a whole number, for each image or pixel"
        )
    if features.ndim > 2 and labels.shape[1:] != features.shape[2:]:
        smaller = F.interpolate(labels[:, None].double(), features.shape[2:], mode="nearest-exact")
        labels = smaller[:, 0].long()
    rows, classes = features.movedim(1, -1).flatten(0, -2), labels.flatten().long()
    return rows[classes >= 0], classes[classes >= 0]


class PrototypeSums:
    """Adds up features by class, in float64."""

    def __init__(self) -> None:
        self._sums: dict[int, Tensor] = {}
        self._counts: dict[int, int] = {}

    def add(self, rows: Tensor, classes: Tensor) -> None:
        """Count features (N, D) of classes (N,)."""
        for label in classes.unique().tolist():
            own = rows[classes == label].double()
            self._sums[label] = self._sums.get(label, torch.zeros_like(own[0])) + own.sum(dim=0)
            self._counts[label] = self._counts.get(label, 0) + len(own)

    def means(self) -> dict[int, Tensor]:
        """Class -> its prototype (D,), float64, of every class that occurred."""
        return {label: total / self._counts[label] for label, total in sorted(self._sums.items())}


def alignment_loss(rows: Tensor, classes: Tensor, prototypes: Mapping[int, Tensor]) -> Tensor:
    """Return Σ_c MSE(features of class c, m_c), the mean over its features and their D numbers.

    Args:
        rows: (N, D).
        classes: (N,).
        prototypes: class -> m_c (D,); a class without one adds nothing.
    """
    loss = rows.sum() * 0
    for label in classes.unique().tolist():
        if label in prototypes:
            loss = loss + (rows[classes == label] - prototypes[label].to(rows)).square().mean()
    return loss
