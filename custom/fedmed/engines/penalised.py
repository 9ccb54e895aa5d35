"""Training on labelled images with a penalty on the features of the same forward pass."""

from collections.abc import Callable
from typing import Any

from monai.engines.utils import IterationEvents
from torch import Tensor

from fedmed.engines.supervised import SupervisedEngine

Penalty = Callable[[Tensor, Tensor], Tensor]  # of images (B, …) and features (B, c, …): a scalar


class PenalisedEngine(SupervisedEngine):
    """Supervised loss and a weighted penalty on features: the form of Fang et al. 2025, Eq. 11 and 12.

    Args:
        args, kwargs: as in :class:`SupervisedEngine`. The network has ``forward_plain``: images -> (logits, features),
            which leaves out what needs the frames before or a site's own layers.
        penalty: of images and features; None = the supervised loss alone.
        penalty_weight: of the penalty; with 0 it is computed and changes nothing.

    ``engine.state.output`` has detached scalars: ``loss``, what was minimised, ``supervised`` and, where there is one,
    ``penalty`` without its weight.
    """

    def __init__(self, *args: Any, penalty: Penalty | None = None, penalty_weight: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.penalty, self.penalty_weight = penalty, penalty_weight

    def _iteration(self, engine: Any, batchdata: dict[str, Any]) -> dict[str, Tensor]:
        images, labels = self.prepare_batch(batchdata, self.state.device, self.non_blocking)
        network: Any = self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        logits, features = network.forward_plain(images)
        self.fire_event(IterationEvents.FORWARD_COMPLETED)
        loss = supervised = self.loss_function(logits, labels)
        output = {"supervised": supervised.detach()}
        if self.penalty is not None:
            penalty = self.penalty(images, features)
            output["penalty"] = penalty.detach()
            loss = supervised + self.penalty_weight * penalty if self.penalty_weight else supervised
        self.fire_event(IterationEvents.LOSS_COMPLETED)
        self.backward(loss)
        self.fire_event(IterationEvents.BACKWARD_COMPLETED)
        self.step(self.optimizer)
        self.state.output = {"loss": loss.detach(), **output}
        self.fire_event(IterationEvents.MODEL_COMPLETED)
        return self.state.output
