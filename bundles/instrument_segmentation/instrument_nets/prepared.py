"""The network as training begins with it."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .instrument_net import InstrumentNet
from .pvt_weights import start_encoder

log = logging.getLogger(__name__)


def prepare_network(
    network: InstrumentNet,
    checkpoint: str | Path | None = None,
    device: Any = "cpu",
    size: Sequence[int] | None = None,
) -> InstrumentNet:
    """Move a network to its device, its encoder filled from published weights if a file is given.

    Args:
        size: (H, W) of the frames to come. If the encoder's stride does not divide them, the log says so.

    Raises:
        BundleInputError: see :func:`instrument_nets.pvt_weights.start_encoder`.
    """
    start_encoder(network.encoder, checkpoint)
    stride = network.encoder.stride
    if size is not None and any(side % stride for side in size):
        filled = " x ".join(str(side + -side % stride) for side in size)
        said = "frames of %d x %d pixels are filled up to %s by repeating the edge: the encoder needs multiples of %d"
        log.info(said, *size, filled, stride)
    return network.to(torch.device(device))
