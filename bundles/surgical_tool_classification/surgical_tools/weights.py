"""Put weights into a network: a trained model, or those that torchvision's networks learnt from ImageNet."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .errors import BundleInputError
from .frame_net import FrameNet

LAST_OF_IMAGENET = ("classifier.6.", "fc.")  # its layer of 1000 classes, in AlexNet and VGG-13, and in ResNets
STATISTICS, COUNTER = ("running_mean", "running_var"), "num_batches_tracked"
SHOWN = 3  # validation_errors that a message names


def load_model(network: nn.Module, path: str | Path) -> nn.Module:
    """Load a trained model's state dict, strictly.

    Raises:
        BundleInputError: the file is missing or unreadable, or a tensor is missing, unknown, of another shape or not
            finite.
    """
    content = read_tensors(path, "train the bundle first, or put a trained model there")
    hint = "use the overlays and classes that it was trained with"
    check_fit(content, network.state_dict(), f"{path} does not fit {type(network).__name__}", hint)
    network.load_state_dict(content, strict=True)
    return network


def start_from(network: nn.Module, path: str | Path | None, layers: str) -> nn.Module:
    """Load some layers, and nothing else, of a model that was trained before.

    Args:
        network: those of its tensors are filled whose names begin with ``layers``, running statistics included.
        path: a state dict that has the same ones; None = nothing is loaded.
        layers: such as ``features.``

    Raises:
        BundleInputError: as in :func:`load_model`, of these layers.
    """
    if path is not None:
        content = read_tensors(path, "train a model first, correct 'pretrained', or set it to null")
        given, needed = (
            {n: t for n, t in each.items() if n.startswith(layers)} for each in (content, network.state_dict())
        )
        hint = "use the overlays that it was trained with"
        check_fit(given, needed, f"{path} does not fit the layers '{layers}…' of {type(network).__name__}", hint)
        network.load_state_dict(given, strict=False)
    return network


def prepare_network(network: FrameNet, checkpoint: str | Path | None = None, device: Any = "cpu") -> FrameNet:
    """Move a network to its device, filled from ImageNet's weights if a file is given; see :func:`load_imagenet`."""
    if checkpoint is not None:
        load_imagenet(network, checkpoint)
    return network.to(torch.device(device))


def load_imagenet(network: FrameNet, path: str | Path) -> None:
    """Fill all but the last layer from a file of torchvision's network of the name ``published``.

    The last layer, which had 1000 classes, keeps its random weights. Where GroupNorm stands for BatchNorm it takes the
    affine tensors, and the running statistics are left out.

    Raises:
        BundleInputError: the file is missing or unreadable, or a tensor that the network needs is missing, of another
            shape or not finite, or it holds tensors that the network has no place for.
    """
    remedy = "correct 'encoder_checkpoint', or set it to null: then training begins with random weights"
    content = read_tensors(path, remedy)
    needed = {name: tensor for name, tensor in network.state_dict().items() if not name.startswith(network.last)}
    # Older files of torchvision have no counters.
    left_out = (COUNTER,) if any(name.endswith(STATISTICS) for name in needed) else (COUNTER, *STATISTICS)
    needed = {name: tensor for name, tensor in needed.items() if not name.endswith(COUNTER)}
    named = {name.removeprefix("module."): tensor for name, tensor in content.items()}
    given = {
        network.origin + name: tensor
        for name, tensor in named.items()
        if not name.startswith(LAST_OF_IMAGENET) and not name.endswith(left_out)
    }
    hint = f"give torchvision's weights of {network.published}, or set it to null"
    check_fit(given, needed, f"encoder_checkpoint {path} does not fit {type(network).__name__}", hint)
    network.load_state_dict(given, strict=False)


def check_fit(given: Mapping[str, Tensor], needed: Mapping[str, Tensor], what: str, hint: str) -> None:
    """Check that named tensors are those that are needed.

    Raises:
        BundleInputError: one is missing, unknown, of another shape or not finite; it says ``what`` and the ``hint``.
    """
    if problems := _validation_errors(given, needed):
        more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise BundleInputError(f"{what}: {'; '.join(problems[:SHOWN])}{more}; {hint}")


def _validation_errors(given: Mapping[str, Tensor], needed: Mapping[str, Tensor]) -> list[str]:
    """Reasons why tensors cannot be loaded."""
    faults = [f"tensor '{name}' is missing" for name in needed if name not in given]
    faults += [f"tensor '{name}' is unknown" for name in given if name not in needed]
    for name in [name for name in needed if name in given]:
        if given[name].shape != needed[name].shape:
            faults.append(
                f"tensor '{name}' has shape {tuple(given[name].shape)} instead of {tuple(needed[name].shape)}"
            )
        elif not bool(torch.isfinite(given[name]).all()):
            faults.append(f"tensor '{name}' holds values that are not finite")
    return faults


def read_tensors(path: str | Path, remedy: str) -> dict[str, Tensor]:
    """The named tensors of a state dict, also below ``state_dict`` or ``model``.

    Raises:
        BundleInputError: the file is missing or holds something else; it ends with the ``remedy``.
    """
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
