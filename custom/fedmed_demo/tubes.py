"""Tubes: rows of close balls along lines, and the depth field of their union."""

from collections.abc import Iterable, Sequence

import numpy as np

from fedmed_demo.grid import Grid, Position, occupancy

Line = tuple[Sequence[Position], Sequence[float]]  # corners and radii of a tube, mm


def polylines(lines: Iterable[Line], step: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Sample several tubes, one after the other, as :func:`polyline` does."""
    points, radii = zip(*(polyline(points, radii, step) for points, radii in lines), strict=True)
    return np.concatenate(points), np.concatenate(radii)


def polyline(
    points: Sequence[Position] | np.ndarray, radii: Sequence[float], step: float = 2.0
) -> tuple[np.ndarray, np.ndarray]:
    """Sample a tube's centre line every ``step`` mm: positions (N, 3) and radii (N,), both in mm."""
    corners = np.asarray(points, dtype=np.float64)
    along = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    at = np.linspace(0, along[-1], max(int(along[-1] / step) + 1, 2))
    return np.stack([np.interp(at, along, corners[:, i]) for i in range(3)], axis=1), np.interp(at, along, radii)


def tubes(
    grid: Grid, points: np.ndarray, radii: np.ndarray, reach: float, gain: np.ndarray | None = None
) -> np.ndarray:
    """Depth field (mm) of the union of balls: max over the points of radius - distance, at least ``-reach``.

    Args:
        grid: where to draw.
        points, radii: of the balls in mm, shapes (N, 3) and (N,); a tube is a row of close balls.
        reach: how far outside the surface the field is right.
        gain: if given, shape (N,): the field is instead each ball's occupancy times its gain (0 … 1).
    """
    field = np.full(grid.shape, -reach if gain is None else 0.0, dtype=np.float32)
    extent = radii + reach
    groups = np.ceil(extent / 2.0).astype(int)
    for group in np.unique(groups):
        chosen = np.flatnonzero(groups == group)
        half = np.ceil(2.0 * group / np.asarray(grid.spacing)).astype(int)
        block = int(max(1, 400_000 // np.prod(2 * half + 1)))
        for start in range(0, len(chosen), block):
            part = chosen[start : start + block]
            _splat(field, grid, points[part], radii[part], None if gain is None else gain[part], half)
    return field


def _splat(
    field: np.ndarray, grid: Grid, points: np.ndarray, radii: np.ndarray, gain: np.ndarray | None, half: np.ndarray
) -> None:
    """Lay one block of balls whose boxes reach ``half`` voxels from their centres into ``field``."""
    centres = (points - np.asarray(grid.first)) / grid.steps
    squares, places = [], []
    for axis, size in enumerate(grid.shape):
        voxels = np.rint(centres[:, axis, None]).astype(np.int64) + np.arange(-half[axis], half[axis] + 1)
        away = np.abs(voxels - centres[:, axis, None]) * grid.spacing[axis]
        if axis == 2:  # a slice shows whatever lies within its thickness
            away = np.maximum(away - 0.4 * grid.spacing[2], 0)
        away[(voxels < 0) | (voxels >= size)] = np.inf
        squares.append((away * away).astype(np.float32))
        places.append(np.clip(voxels, 0, size - 1))
    (dx, dy, dz), (i, j, k) = squares, places
    value = (dx[:, :, None] + dy[:, None])[..., None] + dz[:, None, None]
    np.subtract(radii.astype(np.float32)[:, None, None, None], np.sqrt(value, out=value), out=value)
    if gain is not None:
        value = occupancy(value, grid.spacing[0]) * gain.astype(np.float32)[:, None, None, None]
    flat = ((i[:, :, None] * grid.shape[1] + j[:, None]) * grid.shape[2])[..., None] + k[:, None, None]
    shown = value > (-np.inf if gain is None else 0)
    np.maximum.at(field.reshape(-1), flat[shown], value[shown])
