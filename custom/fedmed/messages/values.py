"""Values that travel beside a model: numbers and tensors, in mappings and lists."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from fedmed.aggregation.sharing import tensor_bytes

NUMBER = 8  # bytes of a number


def map_tensors(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """Return a copy in which each tensor is replaced by what ``change`` makes of it."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_tensors(item, change) for key, item in value.items()}
    return [map_tensors(item, change) for item in value] if isinstance(value, list | tuple) else value


def extras_bytes(value: Any) -> int:
    """Bytes on the wire, without names and framing."""
    if isinstance(value, Tensor):
        return tensor_bytes({"": value})
    if isinstance(value, Mapping | list | tuple):
        return sum(map(extras_bytes, value.values() if isinstance(value, Mapping) else value))
    return NUMBER if type(value) in (int, float) else 0


def is_number(value: Any) -> bool:
    """Whether it is a plain, finite number, also as a float."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # NaN is not
