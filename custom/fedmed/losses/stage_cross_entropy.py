"""Cross-entropy of a network of several stages, each of which refines the one before it."""

from torch import Tensor, nn
from torch.nn import functional as F

from fedmed.errors import FedMedError


class StageCrossEntropy(nn.Module):
    """Mean over the stages of the weighted cross-entropy (Czempiel et al. 2020, arXiv 2003.10751, section 2.3).

    Of each stage ``Σ w_y · CE / Σ w_y`` over all frames of the batch, y being a frame's class.

    Args:
        weight: float (C,), of the classes; None = all 1.
    """

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The scalar loss of logits (S, B, C, T) of S stages and labels (B, T), whole numbers.

        Raises:
            FedMedError: other shapes.
        """
        if logits.ndim != 4 or labels.shape != logits[0, :, 0].shape:
            raise FedMedError(
                f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)}; use (S, B, C, T) and (B, T)"
            )
        every = labels.expand(len(logits), *labels.shape)
        # A weighted mean over all stages is the mean of theirs: each has the same labels, so the same sum of weights.
        return F.cross_entropy(logits.flatten(0, 1), every.flatten(0, 1), self.weight)
