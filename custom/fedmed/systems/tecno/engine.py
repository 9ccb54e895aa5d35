"""Training and scoring of temporal stages on the features of whole videos; the encoder does not change."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from ignite.engine import Events
from monai.engines import SupervisedEvaluator, SupervisedTrainer, Workflow
from monai.inferers import Inferer
from torch import Tensor, nn
from torch.nn import functional as F

from fedmed.data.video.video_features import ShuffledVideos, VideoFeatures
from fedmed.errors import DataError, FedMedError
from fedmed.training.trainer import SupervisedEngine, plain_batch


class StageInferer(Inferer):
    """Logits of features (B, F, T), of all stages (S, B, P, T).

    The network has ``stages``, features (B, F, T) -> logits (S, B, P, T) of S stages.
    """

    def __call__(self, inputs: Tensor, network: Any, *args: Any, **kwargs: Any) -> Tensor:
        return network.stages(inputs)


class LastStageInferer(StageInferer):
    """Logits of one video's features (1, F, T), of the last stage alone, (T, P)."""

    def __call__(self, inputs: Tensor, network: Any, *args: Any, **kwargs: Any) -> Tensor:
        return super().__call__(inputs, network)[-1, 0].T


class FeaturesFirst(Workflow):
    """A workflow that computes its videos' features before its first iteration; an aborted job stops there too."""

    def run(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override] # MONAI's gets other arguments
        loader = cast("VideoFeatures | ShuffledVideos", self.data_loader)
        loader.prepare(lambda: self.fire_event(Events.GET_BATCH_STARTED))
        super().run(*args, **kwargs)


class TemporalTrainer(FeaturesFirst, SupervisedEngine):
    """Trains ``network.stages`` alone, a video in each iteration; not a bit of the rest of the network changes.

    Args:
        device, max_epochs, train_data_loader, kwargs: as in :class:`SupervisedEngine`. ``optimizer`` is of the
            parameters of the stages; ``loss_function`` is of logits (S, 1, P, T) and labels (1, T), such as
            :class:`StageCrossEntropy`.

    Attributes:
        samples: frames that the last :meth:`run` processed.

    Raises:
        DataError: there is no video.
    """

    samples: int = 0

    def __init__(
        self, device: torch.device | str, max_epochs: int, train_data_loader: ShuffledVideos, **kwargs: Any
    ) -> None:
        if not len(train_data_loader):
            raise DataError("temporal stages have no labelled videos to learn from; list some under 'training'")
        super().__init__(device, max_epochs, train_data_loader, inferer=StageInferer(), **kwargs)

    def _iteration(self, engine: SupervisedTrainer, batchdata: dict[str, Tensor]) -> dict[str, Tensor]:
        self.samples += len(batchdata["video"])
        return super()._iteration(engine, batchdata)


class TemporalEvaluator(FeaturesFirst, SupervisedEvaluator):
    """Runs ``network.stages`` on a video in each iteration; ``pred`` are the last logits (T, P), ``label`` is (T,).

    The arguments are those of ``monai.engines.SupervisedEvaluator``.
    """

    def __init__(
        self, device: torch.device | str, val_data_loader: VideoFeatures, network: nn.Module, **kwargs: Any
    ) -> None:
        settings: dict[str, Any] = {"prepare_batch": _one_video, "inferer": LastStageInferer(), "decollate": False}
        super().__init__(torch.device(device), val_data_loader, network, **settings, **kwargs)


def _one_video(batch: Mapping[str, Any], *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Features (1, F, T) and labels (T,) on the device."""
    features, labels = plain_batch(batch, *args, **kwargs)
    return features, None if labels is None else labels[0]


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
