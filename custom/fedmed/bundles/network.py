"""The model of a bundle as named tensors."""

import random
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from monai.bundle import ConfigParser
from torch import Tensor, nn

from fedmed.errors import BundleError, FedMedError, SharingError, unwrapped
from fedmed.messages.values import is_number
from fedmed.seeds import derive_seed


def parsed(parser: ConfigParser, id: str) -> Any:
    """Build one item of a bundle's configuration.

    MONAI wraps whatever goes wrong inside a component in a RuntimeError; our own errors come out again.
    Of a bundle's own error the text does, and not that of the library's error below it.

    Raises:
        BundleError: the id is missing or the component cannot be built; names the id.
    """
    try:
        return parser.get_parsed_content(id)
    except FedMedError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a component's constructor raises is reported with its id
        cause = unwrapped(error)
        if isinstance(cause, FedMedError):
            raise cause from error
        raise BundleError(f"bundle item '{id}' cannot be built: {cause}") from error


def seed_everything(seed: int) -> None:
    """Seed the global generators: weights, dropout, and libraries that draw from them."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def initial_network(parser: ConfigParser, seed: int) -> nn.Module:
    """Build the bundle's network; the same seed gives the same weights at server and sites."""
    seed_everything(derive_seed(seed, "initial weights"))
    network: nn.Module = parsed(parser, "network")
    return network


def named_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Return copies of all tensors of the network's state, on the CPU."""
    return {name: t.detach().cpu().clone() for name, t in network.state_dict().items()}


def merge(own: Mapping[str, Tensor], received: Mapping[str, Tensor], required: Collection[str]) -> dict[str, Tensor]:
    """Replace a site's tensors by those received, strictly.

    Args:
        own: all tensors of the site's model.
        received: what the server sent.
        required: names that the site's role must receive.

    Raises:
        SharingError: an unknown, missing or wrongly shaped or typed tensor, by name.
    """
    for name in required:
        if name not in received:
            raise SharingError(f"tensor '{name}' is missing from what the server sent; do both use the same job?")
    for name, tensor in received.items():
        if name not in own:
            raise SharingError(f"tensor '{name}' is not in this site's model; do both use the same overlays?")
        if tensor.shape != own[name].shape or tensor.dtype != own[name].dtype:
            here = f"{tuple(own[name].shape)} {own[name].dtype}"
            raise SharingError(f"tensor '{name}' arrived as {tuple(tensor.shape)} {tensor.dtype}, expected {here}")
    return {**own, **received}


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Keep finite numbers with a name only: nothing else may travel as a metric."""
    return {name: value for name, value in metrics.items() if isinstance(name, str) and is_number(value)}
