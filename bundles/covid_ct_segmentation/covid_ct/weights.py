"""Put weights into the network: a trained model, or an encoder from a 2D ResNet-50."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from covid_ct.errors import BundleInputError

STAGES = ("layer1", "layer2", "layer3", "layer4")


def load_model(network: nn.Module, path: str | Path) -> nn.Module:
    """Load a trained model's state dict, strictly.

    Raises:
        BundleInputError: the file is missing, or a tensor is missing, unknown or of another shape.
    """
    content = _read(path, "train the bundle first, or put a trained model there")
    problems = _validation_errors(content, network.state_dict())
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise BundleInputError(
            f"{path} does not fit {type(network).__name__}: {'; '.join(problems[:3])}{more}. Use the network and "
            "overlays that it was trained with"
        )
    network.load_state_dict(content, strict=True)
    return network


def prepare_network(
    network: nn.Module, checkpoint: str | Path | None = None, device: Any = "cpu", channels_last: bool = False
) -> nn.Module:
    """Move a network to its device, with the encoder from a 2D ResNet-50 if a checkpoint is given.

    Args:
        network: the bundle's network; only AHNet can take an encoder.
        checkpoint: state dict of an ImageNet ResNet-50 as torchvision names it (``conv1``, ``bn1``,
            ``layer1`` … ``layer4``, also with a ``module.`` prefix), or None.
        device: where the network goes.
        channels_last: lay the weights out as NDHWC. On CPUs it makes a small SegResNet faster, and AHNet slower.

    Raises:
        BundleInputError: the file is missing or is not that of a ResNet-50.
    """
    if checkpoint is not None:
        load_encoder(network, checkpoint)
    layout = torch.channels_last_3d if channels_last else torch.preserve_format
    return network.to(torch.device(device), memory_format=layout)


def load_encoder(network: nn.Module, checkpoint: str | Path) -> None:
    """Fill AHNet's encoder from a 2D ResNet-50 (Liu et al. 2018: a 3×3 kernel becomes 3×3×1, BatchNorm is copied).

    As in MONAI's ``AHNet.copy_from`` the three colour planes of the 7×7 stem become the three slices of the 7×7×3
    stem. Running statistics are copied too; ``copy_from`` leaves them at 0 and 1.
    """
    if not all(hasattr(network, name) for name in ("conv1", "bn0", *STAGES)):
        raise BundleInputError(
            f"encoder_checkpoint is given, but {type(network).__name__} has no ResNet-50 encoder; use AHNet or null"
        )
    source = {name.removeprefix("module."): tensor for name, tensor in _read(checkpoint, "correct the path").items()}
    target = network.state_dict()
    filled = {name: _taken(source, name, target[name], checkpoint) for name in target if _in_encoder(name)}
    network.load_state_dict({**target, **filled}, strict=True)


def _validation_errors(given: Mapping[str, Tensor], needed: Mapping[str, Tensor]) -> list[str]:
    """Reasons why a state dict cannot be loaded."""
    missing = [f"tensor '{name}' is missing" for name in needed if name not in given]
    unknown = [f"tensor '{name}' is unknown" for name in given if name not in needed]
    shapes = [
        f"tensor '{name}' has shape {tuple(given[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in needed.items()
        if name in given and given[name].shape != tensor.shape
    ]
    return missing + unknown + shapes


def _in_encoder(name: str) -> bool:
    return name.split(".")[0] in ("conv1", "bn0", *STAGES)


def _taken(source: Mapping[str, Tensor], name: str, target: Tensor, checkpoint: str | Path) -> Tensor:
    """One tensor of the encoder: that of the source with the target's number of axes."""
    # AHNet's shortcuts are convolution, pooling, norm; those of a ResNet are convolution, norm.
    origin = name.replace("bn0.", "bn1.").replace("downsample.2.", "downsample.1.")
    if origin not in source:
        raise BundleInputError(f"{checkpoint}: tensor '{origin}' is missing; a state dict of a 2D ResNet-50 is needed")
    value = source[origin]
    if name == "conv1.weight" and value.ndim == 4:
        value = value.permute(0, 2, 3, 1).unsqueeze(1)  # (64, 3, 7, 7) -> (64, 1, 7, 7, 3)
    elif value.ndim == 4:
        value = value.unsqueeze(-1)
    if value.shape != target.shape:
        raise BundleInputError(
            f"{checkpoint}: tensor '{origin}' has shape {tuple(source[origin].shape)}, which does not fit AHNet's "
            f"'{name}' {tuple(target.shape)}; a state dict of a 2D ResNet-50 is needed"
        )
    return value.to(target.dtype)


def _read(path: str | Path, remedy: str) -> dict[str, Tensor]:
    if not Path(path).is_file():
        raise BundleInputError(f"{path} does not exist; {remedy}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - torch's unpickler raises a dozen kinds for a file it cannot read
        raise BundleInputError(
            f"{path} is not a file of weights ({type(error).__name__}: {error}); {remedy}"
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise BundleInputError(f"{path} holds {type(content).__name__}, not named tensors; {remedy}")
    return dict(content)
