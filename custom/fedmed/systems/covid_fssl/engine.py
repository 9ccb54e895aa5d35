"""Training on images without masks, by consistency with the model's own confident predictions."""

from typing import Any

from torch import Tensor

from fedmed.systems.covid_fssl.loss import ConsistencyLoss
from fedmed.training.unlabelled import PseudoLabelTrainer


class ConsistencyEngine(PseudoLabelTrainer):
    """Algorithm 2 of Yang et al. 2021; with labelled cases as well, semi-supervised training at one site.

    The target is ``p``, the foreground probability of the un-augmented patch (Eq. 4), by the current model: a teacher
    and a ramp-up, see :class:`PseudoLabelTrainer`, are not in the paper. With a threshold of 1, no weight decay and a
    fresh Adam the parameters do not move. BatchNorm's running statistics still do: the student's pass is an ordinary
    pass in train mode.

    Args:
        args, kwargs: as in :class:`PseudoLabelTrainer`. The inferer returns the foreground probability (B, 1, ...).
        consistency_loss: called with (p, q), Eq. 6.

    ``engine.state.output`` also has ``confident_fraction`` (share of voxels in the loss's region) and
    ``foreground_fraction`` (share with p > 0.5).
    """

    def __init__(self, *args: Any, consistency_loss: ConsistencyLoss, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.consistency_loss = consistency_loss

    def targets(self, images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """p (B, 1, ...), and how much of it is trained on."""
        p = self.pseudo_label(images)
        region = self.consistency_loss.region(p).float().mean()
        return p, {"confident_fraction": region, "foreground_fraction": (p > 0.5).float().mean()}

    def unlabelled_loss(self, q: Tensor, targets: Tensor) -> Tensor:
        return self.consistency_loss(targets, q)
