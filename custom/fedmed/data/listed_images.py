"""Images of a list: a few places of it, and an image as a plain tensor."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def spread(length: int, most: int) -> NDArray[np.int64]:
    """At most ``most`` places of a list of ``length``, evenly spread: the middles of equal parts, which increase."""
    n = min(length, most)
    return (2 * np.arange(n, dtype=np.int64) + 1) * length // (2 * max(n, 1))


def plain(value: Any) -> Tensor:
    """The tensor without MONAI's metadata, which dispatches every operation on it through Python."""
    return value.as_tensor() if hasattr(value, "as_tensor") else torch.as_tensor(value)
