"""Put the weights of a trained model into a network."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from surgical_tools.errors import BundleInputError


def load_model(network: nn.Module, path: str | Path) -> nn.Module:
    """Load a trained model's state dict, strictly.

    Raises:
        BundleInputError: the file is missing or unreadable, or a tensor is missing, unknown, of another shape or not
            finite.
    """
    if not Path(path).is_file():
        raise BundleInputError(f"{path} does not exist; train the bundle first, or put a trained model there")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - torch's unpickler raises a dozen kinds for a file it cannot read
        raise BundleInputError(f"{path} is not a file of weights ({type(error).__name__}); train again") from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise BundleInputError(f"{path} holds {type(content).__name__}, not named tensors; train again")
    if bad := [name for name, tensor in content.items() if not bool(torch.isfinite(tensor).all())]:
        raise BundleInputError(f"{path}: tensor '{bad[0]}' holds values that are not finite; use another checkpoint")
    try:
        network.load_state_dict(dict(content), strict=True)
    except RuntimeError as error:
        what = "use the overlays and classes that it was trained with"
        raise BundleInputError(f"{path} does not fit {type(network).__name__}; {what}: {error}") from error
    return network
