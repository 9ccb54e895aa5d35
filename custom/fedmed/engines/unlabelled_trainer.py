"""What engines that learn from images without labels have in common."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from fedmed.engines.trainer import StatefulTrainer, on_gpu, plain_batch
from fedmed.errors import DataError


class UnlabelledTrainer(StatefulTrainer):
    """Keeps network and optimizer, and trains without MONAI's per-iteration costs.

    Args:
        device: where to compute.
        max_epochs: passes of ``epoch_length`` iterations.
        unlabeled_loader: batches with ``image``; other keys are ignored.
        network: the model that is trained.
        optimizer: of its parameters.
        epoch_length: iterations; default: batches in ``unlabeled_loader``.
        amp: float16 mixed precision; has an effect on CUDA devices only.
        train_handlers: Ignite handlers.
        prepare_batch: gives images, and labels that are not used, on the device.

    Raises:
        DataError: there is no loader.
    """

    lists: ClassVar[str] = "'unlabeled'"  # of a datalist, in which it finds images

    def __init__(
        self,
        device: torch.device | str,
        max_epochs: int,
        unlabeled_loader: Iterable[Mapping[str, Any]] | None,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        epoch_length: int | None = None,
        amp: bool = False,
        train_handlers: Sequence[Any] | None = None,
        prepare_batch: Callable[..., Any] = plain_batch,
    ) -> None:
        if unlabeled_loader is None:
            raise DataError(f"{type(self).__name__} has no images to train on; list some under {self.lists}")
        super().__init__(
            device=device,
            max_epochs=max_epochs,
            data_loader=unlabeled_loader,
            epoch_length=epoch_length,
            non_blocking=True,
            prepare_batch=prepare_batch,
            handlers=train_handlers,
            amp=amp and on_gpu(device),
            decollate=False,
        )
        self.network, self.optimizer = network, optimizer
