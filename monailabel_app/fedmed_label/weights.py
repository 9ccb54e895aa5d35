"""A bundle's network with its weights: every tensor must fit, so that no weight stays random."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from monai.bundle import ConfigParser
from torch import Tensor, nn

from fedmed.errors import BundleError
from fedmed_label.bundles import ServedBundle

SHOWN = 3  # validation_errors that a message names


def open_network(bundle: ServedBundle) -> nn.Module:
    """Build the network that ``inference.*`` defines and load the bundle's own weights.

    Raises:
        BundleError: the configuration cannot be used, or the weights do not fit the network.
    """
    if bundle.weights.suffix == ".ts":
        return _torchscript(bundle.weights, "cpu")
    parser = ConfigParser()
    try:
        parser.read_config(str(bundle.config))
        parser["bundle_root"] = str(bundle.root)
        with importable(bundle.root):
            network = parser.get_parsed_content("network_def", instantiate=True)
    except Exception as error:  # noqa: BLE001 - whatever a component's constructor raises is reported with its file
        raise BundleError(f"{bundle.config}: 'network_def' cannot be built ({_short(error)}); correct it") from error
    return load_weights(network, bundle.weights, "cpu")


def load_weights(network: nn.Module | None, path: Path, device: str) -> nn.Module:
    """Load weights into a network on ``device`` and set it to evaluation; nothing in the file is executed.

    Args:
        network: changed in place. None = the file is TorchScript.
        path: a state dict, bare or under ``model``.

    Raises:
        BundleError: not a file of weights, or a tensor is missing, unknown, of another shape, or not finite.
    """
    if network is None:
        return _torchscript(path, device)
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # noqa: BLE001 - torch's unpickler raises a dozen kinds for a file it cannot read
        raise BundleError(f"{path} is not a file of weights ({_short(error)}); export the bundle again") from error
    if isinstance(content, Mapping) and isinstance(content.get("model"), Mapping):
        content = content["model"]
    if not isinstance(content, Mapping):
        raise BundleError(f"{path} holds {type(content).__name__}, not named tensors; export the bundle again")
    validation_errors = _validation_errors(content, network.state_dict())
    if validation_errors:
        more = f" and {len(validation_errors) - SHOWN} more" if len(validation_errors) > SHOWN else ""
        raise BundleError(
            f"{path} does not fit the network of this bundle: {'; '.join(validation_errors[:SHOWN])}{more}. Weights "
            "and configs/inference.* must come from the same export"
        )
    network.load_state_dict(content, strict=True)
    return network.to(torch.device(device)).eval()


@contextmanager
def importable(root: Path) -> Iterator[None]:
    """Let a bundle's own package be imported."""
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        sys.path.remove(str(root))


def _torchscript(path: Path, device: str) -> nn.Module:
    try:
        return torch.jit.load(path, map_location=torch.device(device)).eval()
    except Exception as error:  # noqa: BLE001 - as above
        raise BundleError(f"{path} is not TorchScript ({_short(error)}); export the bundle again") from error


def _validation_errors(given: Mapping[str, object], needed: Mapping[str, Tensor]) -> list[str]:
    """Reasons why a state dict cannot be loaded."""
    faults = [f"tensor '{name}' is missing" for name in needed if name not in given]
    faults += [f"tensor '{name}' is unknown" for name in given if name not in needed]
    for name, tensor in needed.items():
        value = given.get(name)
        if value is None:
            continue
        if not isinstance(value, Tensor):
            faults.append(f"'{name}' is not a tensor but {type(value).__name__}")
        elif value.shape != tensor.shape:
            faults.append(f"tensor '{name}' has shape {tuple(value.shape)} instead of {tuple(tensor.shape)}")
        elif not bool(torch.isfinite(value).all()):
            faults.append(f"tensor '{name}' holds values that are not finite")
    return faults


def _short(error: Exception) -> str:
    """Kind and first line: the rest is torch's advice to load the file without protection."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"
