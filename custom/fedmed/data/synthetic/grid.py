"""The voxel grid of one scan and the few vectorised tools that every organ is drawn with.

Positions are millimetres in RAS+: x grows towards the patient's right, y towards the front, z towards the head.
Shapes are *depth fields*: positive inside, negative outside, in millimetres from the border (exact or nearly so).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Grid:
    """A voxel grid aligned with the patient's axes.

    Args:
        shape: voxels along the three array axes.
        spacing: voxel size in mm along the three array axes.
        first: RAS+ position in mm of the centre of voxel (0, 0, 0).
        signs: +1 where the array axis runs towards right, front, head; -1 where it runs against it.
    """

    shape: tuple[int, int, int]
    spacing: tuple[float, float, float]
    first: tuple[float, float, float]
    signs: tuple[int, int, int] = (-1, -1, 1)

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

    def affine(self, shift: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> np.ndarray:
        """The 4x4 voxel-to-RAS+ matrix, with the patient moved by ``shift`` mm on the table."""
        matrix = np.diag([*self.steps, 1.0])
        matrix[:3, 3] = np.asarray(self.first) + np.asarray(shift)
        return matrix

    def index(self, points: np.ndarray) -> np.ndarray:
        """Fractional voxel indices, shape (N, 3), of positions in mm, shape (N, 3)."""
        return (points - np.asarray(self.first)) / self.steps


def smooth_noise(rng: np.random.Generator, grid: Grid, length: float) -> np.ndarray:
    """A random field of zero mean and unit spread that varies over about ``length`` mm; float32, the grid's shape.

    Random knots joined by a cubic B-spline, one small matrix product an axis, so that it costs a few milliseconds.
    """
    bases = [_spline_basis(n, s, length) for n, s in zip(grid.shape, grid.spacing, strict=True)]
    field = rng.standard_normal([basis.shape[1] for basis in bases], dtype=np.float32)
    field = field @ bases[2].T
    field = np.einsum("yb,abz->ayz", bases[1], field, optimize=True)
    field = np.tensordot(bases[0], field, axes=1)
    field -= field.mean()
    return field / max(float(field.std()), 1e-6)


def _spline_basis(size: int, spacing: float, length: float) -> np.ndarray:
    """Cubic B-spline weights of every knot at every voxel, shape (size, knots)."""
    step = max(length / spacing, 1.0)
    knots = int(np.ceil(size / step)) + 3
    distance = np.abs(np.arange(size)[:, None] / step - (np.arange(knots)[None] - 1))
    near, far = 2 / 3 - distance**2 + distance**3 / 2, (2 - distance) ** 3 / 6
    return np.where(distance < 1, near, np.where(distance < 2, far, 0)).astype(np.float32)


def occupancy(depth: np.ndarray, width: float) -> np.ndarray:
    """Share of a voxel of ``width`` mm inside a shape: 0 outside, 1 inside, a ramp at the border."""
    return np.clip(depth / width + 0.5, 0.0, 1.0)


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


def ellipsoid(grid: Grid, centre: tuple, radii: tuple, turn: float = 0.0) -> np.ndarray:
    """Depth field, nearly in mm, of an ellipsoid turned by ``turn`` radians about the body's long axis."""
    x, y, z = (axis - np.float32(c) for axis, c in zip(grid.axes, centre, strict=True))
    cos, sin = np.float32(np.cos(turn)), np.float32(np.sin(turn))
    u, v = (cos * x + sin * y) / radii[0], (cos * y - sin * x) / radii[1]
    return (1 - np.sqrt(u * u + v * v + (z / radii[2]) ** 2)) * np.float32(min(radii))


def polyline(points: list[tuple], radii: list[float], step: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Sample a tube's centre line every ``step`` mm: positions (N, 3) and radii (N,), both in mm."""
    corners, radii = np.asarray(points, dtype=np.float64), np.asarray(radii, dtype=np.float64)
    along = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    at = np.linspace(0, along[-1], max(int(along[-1] / step) + 1, 2))
    return np.stack([np.interp(at, along, corners[:, i]) for i in range(3)], axis=1), np.interp(at, along, radii)


def tubes(
    grid: Grid, points: np.ndarray, radii: np.ndarray, reach: float, gain: np.ndarray | None = None
) -> np.ndarray:
    """Depth field (mm) of the union of balls: max over the points of radius - distance, at least ``-reach``.

    Args:
        grid: where to draw.
        points: centres in mm, shape (N, 3); a tube is a row of close centres.
        radii: mm, shape (N,).
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


def _splat(field, grid, points, radii, gain, half) -> None:
    """Lay one block of balls whose boxes reach ``half`` voxels from their centres into ``field``."""
    offsets = np.stack(np.meshgrid(*[np.arange(-h, h + 1) for h in half], indexing="ij"), axis=-1).reshape(-1, 3)
    centres = grid.index(points)
    nearest = np.rint(centres).astype(np.int64)
    voxels = nearest[:, None] + offsets[None]
    away = ((voxels - centres[:, None]) * grid.steps).astype(np.float32)
    # A slice shows whatever lies within its thickness.
    away[..., 2] = np.maximum(np.abs(away[..., 2]) - np.float32(0.4 * grid.spacing[2]), 0)
    value = radii[:, None].astype(np.float32) - np.sqrt(np.einsum("nki,nki->nk", away, away))
    if gain is not None:
        value = occupancy(value, grid.spacing[0]) * gain[:, None].astype(np.float32)
    inside = np.all((voxels >= 0) & (voxels < np.asarray(grid.shape)), axis=-1)
    flat = voxels @ np.array([grid.shape[1] * grid.shape[2], grid.shape[2], 1])
    np.maximum.at(field.reshape(-1), flat[inside], value[inside])
