"""Training of videos: without labels by temporal cycle consistency, with labels by labels and contrast."""

from typing import Any

import torch
import torch.nn.functional as F
from monai.engines.utils import IterationEvents
from torch import Tensor, nn

from fedmed.data.listed_images import plain
from fedmed.errors import FedMedError
from fedmed.systems.fedcy.loss import CycleConsistencyLoss, feature_spread, nt_xent
from fedmed.training.trainer import SupervisedEngine
from fedmed.training.unlabelled import UnlabelledTrainer

_BatchNorm = nn.modules.batchnorm._BatchNorm


class CycleEngine(UnlabelledTrainer):
    """Frames of one clip find their like in another clip and come back to their own place: Kassem et al. 2023, Eq. 7.

    One iteration: the features of all frames of a batch of clips, in one forward pass; the loss over all pairs of these
    clips, there and back, in float32 whatever ``amp`` is; one optimizer step on ``cycle_weight`` · loss. The classifier
    takes no part.

    Args:
        args, kwargs: as in :class:`UnlabelledTrainer`. Batches have ``image`` (B, k, 3, H, W) of B ≥ 2 clips and
            ``part`` (B, k), the share of the video before each frame, and are prepared by
            :class:`fedmed.training.video_frames.ClipBatches`. The network has ``features``: (n, 3, H, W) -> (n, D).
        cycle_loss: of features (B, k, D).
        cycle_weight: λ_t; it multiplies the loss's regulariser too. There is no other loss here, so an optimizer that
            divides the scale of its gradients away, such as Adam, makes the same steps with any weight above 0.
        max_grad_norm: largest norm of the gradients (ours); None = as they are. Single frames dominate early on.
        statistics_momentum: of BatchNorm's running statistics at this site (ours); 0 leaves them as they came, None =
            the network's own.

    ``engine.state.output`` has detached scalars: ``loss``, which was minimised and may be negative; ``cycle_error``,
    ``min_variance``, ``cycle_back`` and ``cycle_chance``, see :class:`fedmed.systems.fedcy.loss.Cycles`; and
    ``feature_spread``, how unlike the frames of a clip are, 0 where all are the same. ``samples`` counts frames.

    Raises:
        FedMedError: a weight, a norm or a momentum outside its range.
    """

    samples: int = 0

    def __init__(
        self,
        *args: Any,
        cycle_loss: CycleConsistencyLoss | None = None,
        cycle_weight: float = 10.0,
        max_grad_norm: float | None = None,
        statistics_momentum: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        momentum, norm = statistics_momentum, max_grad_norm
        if cycle_weight < 0:
            raise FedMedError(f"CycleEngine: cycle_weight is {cycle_weight}; use 0 or more")
        if norm is not None and norm <= 0:
            raise FedMedError(f"CycleEngine: max_grad_norm is {norm}; use a number above 0, or null")
        if momentum is not None and not 0 <= momentum <= 1:
            raise FedMedError(f"CycleEngine: statistics_momentum is {momentum}; use 0 to 1, or null")
        self.cycle_loss, self.cycle_weight = cycle_loss or CycleConsistencyLoss(), cycle_weight
        self.max_grad_norm, self.statistics_momentum = max_grad_norm, statistics_momentum

    def run(self) -> None:  # type: ignore[override] # as in StatefulTrainer
        for layer in self.network.modules():
            if isinstance(layer, _BatchNorm) and self.statistics_momentum is not None:
                layer.momentum = self.statistics_momentum
        super().run()

    def _iteration(self, engine: "CycleEngine", batchdata: dict[str, Any]) -> dict[str, Tensor]:
        frames, _ = self.prepare_batch(batchdata, self.state.device, self.non_blocking)
        network: Any = self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", enabled=self.amp):
            features: Tensor = network.features(frames)
        clips = features.float().unflatten(0, batchdata["image"].shape[:2])  # (B, k, D)
        self.fire_event(IterationEvents.FORWARD_COMPLETED)
        cycles = self.cycle_loss(clips, plain(batchdata["part"]).to(clips))
        loss = self.cycle_weight * cycles.loss
        self.fire_event(IterationEvents.LOSS_COMPLETED)
        self.backward(loss)
        self.fire_event(IterationEvents.BACKWARD_COMPLETED)
        self.step(self.optimizer, self.max_grad_norm)
        self.samples += len(frames)
        self.state.output = {
            "loss": loss.detach(),
            "cycle_error": cycles.error,
            "min_variance": cycles.variance,
            "cycle_back": cycles.back,
            "cycle_chance": cycles.chance,
            "feature_spread": feature_spread(clips),
        }
        self.fire_event(IterationEvents.MODEL_COMPLETED)
        return self.state.output


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
        network: Any = self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", enabled=self.amp):
            features = network.features(images)  # (B, D)
            logits = network.classifier(features).float()
        features = features.float()
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
