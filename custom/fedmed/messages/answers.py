"""Answers of sites, and the values that travel beside a model."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    """Tell whether a value is a plain, finite number, also as a float."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # NaN is not


@dataclass
class Update:
    """A site's contribution to one round.

    Attributes:
        round: the round it was computed for, counted from 0.
        tensors: name -> difference to the received tensor (``after - before``), on the CPU, in the model's dtypes.
            Integer counters are differences too.
        n_steps: optimizer steps done (Yang 2021's m_k).
        n_samples: training images of the site, or those that the round processed if its engine counts by these.
        metrics: scalars such as ``train_loss``, ``val_dice``; no names of cases.
        extras: small additional values of a method, numbers or tensors, empty unless the site allows them.
    """

    site: str
    round: int
    tensors: dict[str, Tensor]
    n_steps: int
    n_samples: int
    metrics: dict[str, float] = field(default_factory=dict)
    extras: dict[str, Any] = field(default_factory=dict)


@dataclass
class Extras:
    """A site's answer to a ``metadata`` task.

    Attributes:
        round: the round whose starting model it was computed with.
        values: name -> number or tensor; empty where the site has too few images, or does not allow it.
    """

    site: str
    round: int
    values: dict[str, Any] = field(default_factory=dict)


@dataclass
class Release:
    """A site's answer to a ``release`` task.

    Attributes:
        round: the round after which the site kept these private tensors.
        allowed: whether the site's own settings allow it; if not, there are no tensors.
        tensors: name -> value (no difference), on the CPU.
        keep: whether the site's own settings allow that the mean of all sites' is kept for an export.
    """

    site: str
    round: int | None
    allowed: bool = False
    tensors: dict[str, Tensor] = field(default_factory=dict)
    keep: bool = False


Answer = Update | Extras | Release | Mapping[str, float]  # the last: scores of a validation or evaluation
