"""The voxel grid of one scan and the few vectorised tools that every organ is drawn with.

Positions are millimetres in RAS+: x grows towards the patient's right, y towards the front, z towards the head.
Shapes are *depth fields*: positive inside, negative outside, in millimetres from the border (exact or nearly so).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

Position = tuple[float, float, float]  # mm in RAS+


@dataclass(frozen=True)
class Grid:
    """A voxel grid aligned with the patient's axes."""

    shape: tuple[int, int, int]  # voxels
    spacing: tuple[float, float, float]  # mm
    first: Position  # centre of voxel (0, 0, 0)
    signs: tuple[int, int, int] = (-1, -1, 1)  # +1 where an array axis runs towards right, front, head

    @property
    def steps(self) -> np.ndarray:
        """Signed step in mm per index, shape (3,)."""
        return np.asarray(self.spacing) * np.asarray(self.signs)

    @cached_property
    def axes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x, y, z in mm, shaped to broadcast: (X,1,1), (1,Y,1), (1,1,Z)."""
        lines = [
            (f + s * np.arange(n)).astype(np.float32)
            for n, s, f in zip(self.shape, self.steps, self.first, strict=True)
        ]
        return lines[0][:, None, None], lines[1][None, :, None], lines[2][None, None, :]

    def affine(self, shift: np.ndarray) -> np.ndarray:
        """The 4x4 voxel-to-RAS+ matrix, with the patient moved by ``shift`` (3,) mm on the table."""
        matrix = np.diag([*self.steps, 1.0])
        matrix[:3, 3] = np.asarray(self.first) + shift
        return matrix

    def crop(self, low: Position, high: Position) -> tuple["Grid", tuple[slice, slice, slice]]:
        """The part of the grid between two corners (mm), and the slices that cut it from an array."""
        cuts, first = [], []
        for axis, a, b in zip(self.axes, low, high, strict=True):
            line = axis.reshape(-1)
            inside = np.flatnonzero((line >= a) & (line <= b))
            start, stop = (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 1)
            cuts.append(slice(start, stop))
            first.append(float(line[start]))
        i, j, k = cuts
        x, y, z = first
        shape = (i.stop - i.start, j.stop - j.start, k.stop - k.start)
        return Grid(shape, self.spacing, (x, y, z), self.signs), (i, j, k)


def smooth_noise(rng: np.random.Generator, grid: Grid, length: float) -> np.ndarray:
    """A random field of zero mean and about unit spread that varies over ``length`` mm; float32, the grid's shape.

    Random knots joined by a cubic B-spline, one axis after the other. Sums of four terms, not matrix products: the
    bits must not depend on a linear-algebra library or its threads.
    """
    splines = [_spline(n, s, length) for n, s in zip(grid.shape, grid.spacing, strict=True)]
    field = rng.standard_normal([knots for knots, _, _ in splines], dtype=np.float32)
    for axis in (2, 1, 0):
        _, first, weights = splines[axis]
        shape = [-1 if i == axis else 1 for i in range(3)]
        total = np.take(field, first, axis) * weights[0].reshape(shape)
        for k in (1, 2, 3):
            total += np.take(field, first + k, axis) * weights[k].reshape(shape)
        field = total
    return field


def _spline(size: int, spacing: float, length: float) -> tuple[int, np.ndarray, np.ndarray]:
    """Number of knots, each voxel's first knot (size,) and its four weights (4, size), scaled for unit spread."""
    place = np.arange(size) / max(length / spacing, 1.0)
    first = place.astype(int)
    t = place - first
    weights = np.stack([(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3]) / 6
    weights /= np.sqrt((weights**2).sum(axis=0).mean())
    return int(first.max()) + 4, first, weights.astype(np.float32)


def occupancy(depth: np.ndarray, width: float) -> np.ndarray:
    """Share of a voxel of ``width`` mm inside a shape: 0 outside, 1 inside, a ramp at the border."""
    cover = depth * np.float32(1 / width)
    cover += np.float32(0.5)
    return np.clip(cover, 0, 1, out=cover)


def smooth_min(a: np.ndarray, b: np.ndarray, rounding: float) -> np.ndarray:
    """Intersection of two depth fields whose common edge is rounded over about ``rounding`` mm."""
    blend = np.maximum(rounding - np.abs(a - b), 0.0)
    return np.minimum(a, b) - blend * blend * (0.25 / rounding)


def smooth_max(a: np.ndarray, b: np.ndarray, rounding: float) -> np.ndarray:
    """Union of two depth fields with a fillet of about ``rounding`` mm."""
    return -smooth_min(-a, -b, rounding)


def paint(image: np.ndarray, value: np.ndarray | float, cover: np.ndarray) -> None:
    """Lay ``value`` over ``image`` in place; ``cover`` is 0 (nothing) … 1 (opaque)."""
    image += (value - image) * cover


def superellipse(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, power: float) -> np.ndarray:
    """Depth field of |x/a|^p + |y/b|^p = 1, measured along the ray from the centre."""
    rho = (np.abs(x / a) ** power + np.abs(y / b) ** power) ** np.float32(1 / power) + np.float32(1e-3)
    return np.sqrt(x * x + y * y) * (1 / rho - 1) + np.where(rho < 0.05, np.minimum(a, b), 0)


def ellipsoid(grid: Grid, centre: Position, radii: Position, turn: float = 0.0) -> np.ndarray:
    """Depth field, nearly in mm, of an ellipsoid turned by ``turn`` radians about the body's long axis."""
    x, y, z = (axis - np.float32(c) for axis, c in zip(grid.axes, centre, strict=True))
    cos, sin = np.float32(np.cos(turn)), np.float32(np.sin(turn))
    u, v = (cos * x + sin * y) / radii[0], (cos * y - sin * x) / radii[1]
    return (1 - np.sqrt(u * u + v * v + (z / radii[2]) ** 2)) * np.float32(min(radii))
