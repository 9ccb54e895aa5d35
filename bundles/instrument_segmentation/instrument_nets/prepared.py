"""The network as training begins with it."""

from pathlib import Path
from typing import Any

import torch

from .instrument_net import InstrumentNet
from .pvt_weights import start_encoder


def prepare_network(network: InstrumentNet, checkpoint: str | Path | None = None, device: Any = "cpu") -> InstrumentNet:
    """Move a network to its device, its encoder filled from published weights if a file is given.

    Raises:
        BundleInputError: see :func:`instrument_nets.pvt_weights.start_encoder`.
    """
    start_encoder(network.encoder, checkpoint)
    return network.to(torch.device(device))
