"""Values beside a model on the wire: plain values and arrays, and nothing that a malformed message may hold."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedmed.messages.values import map_tensors

DEEPEST = 8  # levels of values within values; what is sent has three
MOST_VALUES, LONGEST_NAME = 1000, 200  # of an update; the server writes them down
MALFORMED = (AttributeError, KeyError, OverflowError, TypeError, ValueError)  # what reading nonsense may raise


def extras_to_numpy(extras: Mapping[str, Any]) -> dict[str, Any]:
    """Values beside the model as they travel: arrays that share the tensors' memory."""
    return map_tensors(extras, lambda tensor: tensor.detach().cpu().numpy())


def extras_to_tensors(value: Any, level: int = 0) -> Any:
    """Inverse of :func:`extras_to_numpy`.

    Raises:
        TypeError: an array of something else than numbers, a key that is not a name, another kind of object than plain
            values, arrays, mappings and lists, or too many levels of these.
    """
    if level > DEEPEST:
        raise TypeError(f"values within values within values, {DEEPEST} levels and more")
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value))
    if isinstance(value, Mapping):
        if strange := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"a {type(strange[0]).__name__} is not the name of a value")
        return {key: extras_to_tensors(item, level + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [extras_to_tensors(item, level + 1) for item in value]
    if value is not None and type(value) not in (bool, int, float, str):
        raise TypeError(f"a {type(value).__name__} is not a value that may travel")
    return value


def limited(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return named values of an update.

    Raises:
        ValueError: there are too many, or a name is too long.
    """
    if len(values) > MOST_VALUES or any(len(name) > LONGEST_NAME for name in values if isinstance(name, str)):
        raise ValueError(f"more than {MOST_VALUES} values, or a name of more than {LONGEST_NAME} characters")
    return dict(values)


def whole_number(name: str, value: Any) -> int:
    """Return a whole number as it is.

    Raises:
        TypeError: it is a text, or a number with a fraction.
    """
    if type(value) is not int:
        raise TypeError(f"'{name}' is not a whole number")
    return value
