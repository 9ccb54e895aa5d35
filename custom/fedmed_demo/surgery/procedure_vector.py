"""A vector of the name of an operation, where no text encoder is at hand."""

import hashlib

import numpy as np
from numpy.typing import NDArray

WIDTH = 16
FILE = "indicator.txt"  # in a synthetic site's folder


def procedure_vector(name: str, width: int = WIDTH) -> NDArray[np.float64]:
    """(width,) of length 1: each three letters in a row count 1 or −1 at a place that their SHA-256 names.

    Names that share letters, such as nephrectomy and prostatectomy, get vectors that are nearer to each other than
    those of other names: that is all that it has of an embedding of language.

    Args:
        name: at least three letters.
        width: how many numbers.

    Raises:
        ValueError: a shorter name.
    """
    if len(name) < 3:
        raise ValueError(f"the operation is called {name!r}; use a name of three letters or more")
    vector = np.zeros(width)
    for start in range(len(name) - 2):
        digest = hashlib.sha256(name[start : start + 3].encode()).digest()
        vector[digest[0] % width] += 1 if digest[1] % 2 else -1
    length = float(np.linalg.norm(vector))
    if not length:  # all that was counted cancelled out
        vector[len(name) % width] = length = 1.0
    return vector / length
