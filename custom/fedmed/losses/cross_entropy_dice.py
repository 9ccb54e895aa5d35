"""Cross entropy and soft Dice of masks of several classes (Fang et al. 2025, arXiv, Eq. 9)."""

import torch.nn.functional as F
from torch import Tensor, nn

from fedmed.errors import FedMedError
from fedmed.in_range import in_range
from fedmed.losses.dice import soft_dice_loss


class CrossEntropyDice(nn.Module):
    """``CE + dice_weight · mean over classes of the soft Dice loss`` (Eq. 9, λ1 = 0.3).

    Dice takes softmax probabilities, all classes, the first (the background) too, and no squares. A class that no pixel
    of what Dice sums over has adds a constant, without a gradient.

    Args:
        dice_weight: λ1, at least 0.
        batch: sum over the pixels of the whole batch, as in public code of the paper's predecessor (Wang et al., TMI
            2023); otherwise over those of each frame, and take the mean over the frames. The paper does not say.

    Raises:
        FedMedError: a negative weight; when called, other shapes or masks that are not whole numbers.
    """

    def __init__(self, dice_weight: float = 0.3, batch: bool = True) -> None:
        super().__init__()
        self.dice_weight, self.batch = in_range("dice_weight", dice_weight, least=0), batch

    def forward(self, logits: Tensor, classes: Tensor) -> Tensor:
        """Return the scalar loss.

        Args:
            logits: (B, C, H, W).
            classes: whole numbers below C, (B, H, W) or (B, 1, H, W).
        """
        truth = classes[:, 0] if classes.ndim == logits.ndim else classes
        if logits.ndim != 4 or truth.shape != (len(logits), *logits.shape[2:]) or truth.is_floating_point():
            raise FedMedError(
                f"logits {tuple(logits.shape)} and masks {tuple(classes.shape)} of {classes.dtype}; give (B, C, H, W) "
                "and whole numbers (B, H, W)"
            )
        logits, truth = logits.float(), truth.long()
        one_hot = F.one_hot(truth, logits.shape[1]).movedim(-1, 1)
        dice = soft_dice_loss(logits.softmax(dim=1), one_hot, squared=False, batch=self.batch)
        return F.cross_entropy(logits, truth) + self.dice_weight * dice.mean()  # (9)
