"""What a server that trains keeps over the rounds: copies out of networks and optimizers, and back into them."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from fedmed.errors import StateError

HINT = "continue with the job that made it, or start a new run"


def load_network(network: nn.Module, tensors: Mapping[str, Tensor], what: str) -> None:
    """Fill a network with kept tensors.

    Raises:
        StateError: they are of another network.
    """
    own = network.state_dict()
    for name in sorted(set(own) | set(tensors)):
        if name not in own or name not in tensors or own[name].shape != tensors[name].shape:
            kept = tuple(tensors[name].shape) if name in tensors else "missing"
            here = tuple(own[name].shape) if name in own else "missing"
            raise StateError(
                f"the server's {what} is of another network: tensor '{name}' is {kept}, here {here}; {HINT}"
            )
    network.load_state_dict(dict(tensors))


def load_optimizer(optimizer: Any, state: Mapping[str, Any]) -> None:
    """Fill an optimizer with copies of a kept state: it changes its tensors in place.

    Raises:
        StateError: it is of other parameters.
    """
    try:
        optimizer.load_state_dict(copy.deepcopy(dict(state)))
    except (ValueError, KeyError) as error:
        raise StateError(f"the server's kept optimizer is of another network ({error}); {HINT}") from error


def on_cpu(value: Any) -> Any:
    """Copies of all tensors in plain values, on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: on_cpu(each) for key, each in value.items()}
    return [on_cpu(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
