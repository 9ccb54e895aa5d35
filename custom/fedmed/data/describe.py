"""Describe a transform in plain values, so that two processes agree whether it is the same one."""

import functools
import hashlib
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np
import torch

_PLAIN = (str, int, float, bool, type(None))
_TEXT = (Enum, torch.dtype, torch.device, np.dtype, slice)


def describe(value: Any) -> Any:
    """Return ``value`` as nested lists, dictionaries and plain values that ``json`` can write.

    Objects become their class path and their attributes; functions their path; arrays their hash. Nothing depends
    on memory addresses or on the state of random generators, so equal settings give equal text in every process.
    MONAI's ``pickle_hashing`` depends on the latter and refuses lambdas.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, _TEXT):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): describe(item) for key, item in sorted(value.items(), key=lambda pair: str(pair[0]))}
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(describe(item)) for item in value)
    if isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
        array = np.ascontiguousarray(value)
        return [str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
    return _describe_object(value)


def _describe_object(value: Any) -> Any:
    if isinstance(value, functools.partial):
        return ["partial", describe(value.func), describe(value.args), describe(value.keywords)]
    if isinstance(value, np.random.RandomState):
        return "random state"
    if hasattr(value, "__qualname__"):  # a function or a class
        return _path(value)
    return [_path(type(value)), describe(vars(value)) if hasattr(value, "__dict__") else ""]


def _path(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"
