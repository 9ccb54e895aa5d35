"""Where a volume lies in space."""

from itertools import product

import numpy as np


def corner_distance(affine: np.ndarray, other: np.ndarray, shape: tuple[int, ...]) -> float:
    """Largest distance in mm between corresponding corners of two volumes of one ``shape`` (X, Y, Z); NaN if undefined.

    ``affine`` and ``other`` are (4, 4), voxel to mm.
    """
    corners = np.array([(*corner, 1) for corner in product(*((0, n - 1) for n in shape))], dtype=float)
    difference = np.asarray(affine, dtype=float) - np.asarray(other, dtype=float)
    return float(np.linalg.norm((corners @ difference.T)[:, :3], axis=1).max())
