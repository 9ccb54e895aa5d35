"""Describe transforms in plain values, so that two processes agree whether they are the same ones."""

import functools
import hashlib
import json
import weakref
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import monai
import numpy as np
import torch

CACHE_VERSION = 2  # to be raised when a transform of FedMed computes something else with the same settings
_PLAIN = (str, int, float, bool, type(None))
_TEXT = (Enum, torch.dtype, torch.device, np.dtype, slice)
_DESCRIBED: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def settings_text(steps: Sequence[Any]) -> str:
    """What the deterministic transforms do, as text that is equal in every process."""
    for step in steps:
        # Some transforms store facts of the last image among their attributes, so they are described before first use.
        if step not in _DESCRIBED:
            _DESCRIBED[step] = _describe(step)
    facts = {"version": CACHE_VERSION, "monai": monai.__version__, "steps": [_DESCRIBED[step] for step in steps]}
    return json.dumps(facts, sort_keys=True)


def _describe(value: Any) -> Any:
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
        return {str(key): _describe(item) for key, item in sorted(value.items(), key=lambda pair: str(pair[0]))}
    if isinstance(value, (list, tuple)):
        return [_describe(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(_describe(item)) for item in value)
    if isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
        array = np.ascontiguousarray(value)
        return [str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
    return _describe_object(value)


def _describe_object(value: Any) -> Any:
    if isinstance(value, functools.partial):
        return ["partial", _describe(value.func), _describe(value.args), _describe(value.keywords)]
    if isinstance(value, np.random.RandomState):
        return "random state"
    if hasattr(value, "__qualname__"):  # a function or a class
        return _path(value)
    return [_path(type(value)), _describe(vars(value)) if hasattr(value, "__dict__") else ""]


def _path(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"
