"""A few places of a long list."""

import numpy as np
from numpy.typing import NDArray


def spread(length: int, most: int) -> NDArray[np.int64]:
    """At most ``most`` places of a list of ``length``, evenly spread: the middles of equal parts, which increase."""
    n = min(length, most)
    return (2 * np.arange(n, dtype=np.int64) + 1) * length // (2 * max(n, 1))
