"""Against classes that a site learns too surely (FedLD, Zeng et al., MICCAI 2024, arXiv 2408.12300)."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedmed.in_range import in_range


class MarginControl(nn.Module):
    """``loss + weight · log(1 + ‖P‖²)``, P the softmax probabilities: a sure prediction costs more than an unsure one.

    ‖P‖² is the mean over images and pixels of Σ_c p_c², from 1 / C to 1 (ours for pixels: so it depends on neither the
    size of the image nor the batch); with ``whole_batch`` the square of the Frobenius norm over all of them, as in the
    authors' code.

    Args:
        loss: of (logits, labels); None = cross-entropy, of labels (B, ...) or (B, 1, ...), whole numbers.
        weight: at least 0.
        whole_batch: see above.

    Raises:
        FedMedError: the weight is not such a number.
    """

    def __init__(
        self, loss: Callable[[Tensor, Tensor], Tensor] | None = None, weight: float = 0.1, whole_batch: bool = False
    ) -> None:
        super().__init__()
        self.loss, self.weight = loss or _cross_entropy, in_range("weight", weight, least=0)
        self.whole_batch = whole_batch

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the scalar loss of logits (B, C, ...); labels are what ``loss`` takes."""
        exact = logits if logits.dtype == torch.float64 else logits.float()  # sums of float16 overflow
        squares = exact.softmax(dim=1).square().sum(dim=1)
        size = squares.sum() if self.whole_batch else squares.mean()
        return self.loss(logits, labels) + self.weight * torch.log1p(size)


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels[:, 0] if labels.ndim == logits.ndim else labels)
