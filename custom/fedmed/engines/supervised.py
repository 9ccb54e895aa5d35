"""Training on images with masks."""

from typing import Any

import torch
from monai.engines import SupervisedTrainer

from fedmed.engines.trainer import StatefulTrainer, on_gpu, plain_batch


class SupervisedEngine(StatefulTrainer, SupervisedTrainer):
    """``monai.engines.SupervisedTrainer`` without its per-iteration costs, and with a GradScaler that is kept.

    One iteration: ``loss_function(inferer(image, network), label)``, backward, one optimizer step. Batches are not
    decollated, gradients are set to None, tensors are plain.

    Args:
        device, args, kwargs: as in ``monai.engines.SupervisedTrainer``; ``amp``, float16 mixed precision, has an
            effect on CUDA devices only.

    ``engine.state.output`` has ``image``, ``label``, ``pred`` and the scalar ``loss``.
    """

    def __init__(self, device: torch.device | str, *args: Any, **kwargs: Any) -> None:
        lean = {"decollate": False, "optim_set_to_none": True, "non_blocking": True, "prepare_batch": plain_batch}
        amp = kwargs.pop("amp", False) and on_gpu(device)
        super().__init__(device, *args, **{**lean, **kwargs, "amp": amp})
