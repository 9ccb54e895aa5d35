"""Training on labelled frames whose features are told apart by class too (Kassem et al. 2023)."""

from typing import Any

import torch
import torch.nn.functional as F
from monai.engines.utils import IterationEvents
from torch import Tensor

from fedmed.engines.supervised import SupervisedEngine
from fedmed.errors import FedMedError
from fedmed.losses.cycle_consistency import feature_spread
from fedmed.losses.nt_xent import nt_xent


class GuidedEngine(SupervisedEngine):
    """Cross-entropy of the classes and contrast of the features, of one forward pass: Kassem et al. 2023, Eq. 6.

    Args:
        args, kwargs: as in :class:`SupervisedEngine`; ``loss_function`` of (logits, classes) is the cross-entropy
            unless another one is given. The network has ``features``: (B, 3, H, W) -> (B, D), and ``classifier``:
            (B, D) -> (B, P). Labels are whole numbers (B,).
        contrast_weight: λ_c; 0 leaves the contrast out.
        contrast_temperature: τ_c.
        max_grad_norm: largest norm of the gradients (ours); None = as they are.

    ``engine.state.output`` has detached scalars: ``loss``, what was minimised, ``label_contrast``, L_con of Eq. 5, and
    ``feature_spread``, how unlike the frames of a batch are, 0 where all are the same. ``samples`` counts frames.

    Raises:
        FedMedError: a weight or a norm outside its range.
    """

    samples: int = 0

    def __init__(
        self,
        *args: Any,
        contrast_weight: float = 10.0,
        contrast_temperature: float = 0.1,
        max_grad_norm: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **{"loss_function": F.cross_entropy, **kwargs})
        if contrast_weight < 0 or contrast_temperature <= 0:
            values = f"contrast_weight is {contrast_weight} and contrast_temperature {contrast_temperature}"
            raise FedMedError(f"GuidedEngine: {values}; use 0 or more, and a number above 0")
        if max_grad_norm is not None and max_grad_norm <= 0:
            raise FedMedError(f"GuidedEngine: max_grad_norm is {max_grad_norm}; use a number above 0, or null")
        self.contrast_weight, self.contrast_temperature = contrast_weight, contrast_temperature
        self.max_grad_norm = max_grad_norm

    def _iteration(self, engine: Any, batchdata: dict[str, Any]) -> dict[str, Tensor]:
        images, labels = self.prepare_batch(batchdata, self.state.device, self.non_blocking)
        features, logits = self._forward(images)
        self.fire_event(IterationEvents.FORWARD_COMPLETED)
        contrast = nt_xent(features, labels, self.contrast_temperature)
        loss = self.loss_function(logits, labels) + self.contrast_weight * contrast  # Eq. 6
        self.fire_event(IterationEvents.LOSS_COMPLETED)
        self.backward(loss)
        self.fire_event(IterationEvents.BACKWARD_COMPLETED)
        self.step(self.optimizer, self.max_grad_norm)
        self.samples += len(images)
        spread = feature_spread(features[None])
        self.state.output = {"loss": loss.detach(), "label_contrast": contrast.detach(), "feature_spread": spread}
        self.fire_event(IterationEvents.MODEL_COMPLETED)
        return self.state.output

    def _forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, D) and logits (B, P), float32."""
        network: Any = self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", enabled=self.amp):
            features = network.features(images)
            logits = network.classifier(features)
        return features.float(), logits.float()
