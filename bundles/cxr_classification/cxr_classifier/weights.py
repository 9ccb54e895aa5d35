"""Put weights into a network: a trained model, or the encoder of one that was pre-trained."""

import logging
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from cxr_classifier.errors import BundleInputError

ENCODER = "encoder."
SHOWN = 3  # validation_errors that a message names
log = logging.getLogger("cxr_classifier")


def load_model(network: nn.Module, path: str | Path) -> nn.Module:
    """Load a trained model's state dict, strictly.

    Raises:
        BundleInputError: the file is missing, or a tensor is missing, unknown, of another shape or not finite.
    """
    content = _read(path, "train the bundle first, or put a trained model there")
    _check(content, network.state_dict(), path, type(network).__name__)
    network.load_state_dict(content, strict=True)
    return network


def start_from(network: nn.Module, path: str | Path | None) -> nn.Module:
    """Load the encoder, and nothing else, of a model that was trained before, with or without labels.

    Args:
        network: its ``encoder.*`` tensors are filled, running statistics included; the rest stays as it is.
        path: a state dict that has the same ``encoder.*``, as overlay ``pretrain`` writes it; None = nothing is loaded.

    Raises:
        BundleInputError: as in :func:`load_model`, of the encoder.
    """
    if path is None:
        return network
    content = _read(path, "pre-train first (overlay pretrain), correct 'pretrained', or set it to null")
    encoder = {name: tensor for name, tensor in content.items() if name.startswith(ENCODER)}
    needed = {name: tensor for name, tensor in network.state_dict().items() if name.startswith(ENCODER)}
    if not encoder:
        raise BundleInputError(f"{path} has no tensor '{ENCODER}…'; a model of this bundle is needed")
    _check(encoder, needed, path, "the encoder")
    network.load_state_dict(encoder, strict=False)
    log.info("encoder taken from %s (%d tensors)", path, len(encoder))
    return network


def _check(given: Mapping[str, Tensor], needed: Mapping[str, Tensor], path: str | Path, target: str) -> None:
    problems = _validation_errors(given, needed)
    if problems:
        more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise BundleInputError(
            f"{path} does not fit {target}: {'; '.join(problems[:SHOWN])}{more}. Use the overlays and classes that it "
            "was trained with"
        )


def _validation_errors(given: Mapping[str, Tensor], needed: Mapping[str, Tensor]) -> list[str]:
    """Reasons why tensors cannot be loaded."""
    faults = [f"tensor '{name}' is missing" for name in needed if name not in given]
    faults += [f"tensor '{name}' is unknown" for name in given if name not in needed]
    for name, tensor in needed.items():
        if name not in given:
            continue
        if given[name].shape != tensor.shape:
            faults.append(f"tensor '{name}' has shape {tuple(given[name].shape)} instead of {tuple(tensor.shape)}")
        elif not bool(torch.isfinite(given[name]).all()):
            faults.append(f"tensor '{name}' holds values that are not finite")
    return faults


def _read(path: str | Path, remedy: str) -> dict[str, Tensor]:
    if not Path(path).is_file():
        raise BundleInputError(f"{path} does not exist; {remedy}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - torch's unpickler raises a dozen kinds for a file it cannot read
        raise BundleInputError(f"{path} is not a file of weights ({type(error).__name__}); {remedy}") from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise BundleInputError(f"{path} holds {type(content).__name__}, not named tensors; {remedy}")
    return dict(content)
