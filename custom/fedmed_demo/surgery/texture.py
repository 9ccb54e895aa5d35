"""Random fields, round organs and branching vessels on a grid, of which tissue is made."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np

SHIFT = 4  # fractional bits of OpenCV's coordinates


@dataclass(frozen=True)
class Plane:
    """A picture plane of ``shape`` (rows, columns), ``scale`` pixels to a unit, 0 in its middle."""

    shape: tuple[int, int]
    scale: float

    @cached_property
    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """x (1, W) to the right and y (H, 1) downwards of every pixel, float32."""
        rows, columns = ((np.arange(n, dtype=np.float32) - (n - 1) / 2) / self.scale for n in self.shape)
        return columns[None, :], rows[:, None]

    def pixels(self, points: np.ndarray) -> np.ndarray:
        """Columns and rows (N, 2) of ``points`` (N, 2) as OpenCV's integers of ``SHIFT`` fractional bits."""
        middle = (np.array(self.shape[::-1]) - 1) / 2
        return np.rint((points * self.scale + middle) * 2**SHIFT).astype(np.int32)


def noise(rng: np.random.Generator, grid: Plane, length: float, octaves: int = 3, rough: float = 0.5) -> np.ndarray:
    """A random field of about unit spread, float32, that varies over ``length`` units and, less, over halves of it."""
    total = np.zeros(grid.shape, np.float32)
    strength = 1.0
    for octave in range(octaves):
        cell = max(length * grid.scale / 2**octave, 1.0)
        coarse = rng.standard_normal([max(round(n / cell), 1) + 3 for n in grid.shape], dtype=np.float32)
        large = cv2.resize(coarse, None, fx=cell, fy=cell, interpolation=cv2.INTER_CUBIC)
        corner = rng.integers(0, max(int(cell), 1), 2)
        total += strength * large[corner[0] : corner[0] + grid.shape[0], corner[1] : corner[1] + grid.shape[1]]
        strength *= rough
    return total / np.float32(total.std() + 1e-6)


def rgb(field: np.ndarray) -> np.ndarray:
    """(H, W, 3) of a field (H, W) float32: NumPy takes several times as long to broadcast along so short an axis."""
    return cv2.merge((field, field, field))


def smooth_step(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """0 below ``low``, 1 above ``high``, smooth between."""
    t = np.clip((values - low) * np.float32(1 / (high - low)), 0, 1)
    return t * t * (3 - 2 * t)


def mound(
    grid: Plane, centre: tuple[float, float], radii: tuple[float, float], angle: float, warp: np.ndarray | float = 0.0
) -> np.ndarray:
    """Depth of each pixel in an ellipse: 1 in its middle, 0 at its edge, negative outside; ``warp`` is added."""
    x, y = grid.axes
    x, y = x - np.float32(centre[0]), y - np.float32(centre[1])
    cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    along, across = (cos * x + sin * y) / np.float32(radii[0]), (cos * y - sin * x) / np.float32(radii[1])
    return 1 - np.sqrt(along * along + across * across) + warp


def vessels(rng: np.random.Generator, grid: Plane, roots: np.ndarray, width: float, length: float = 1.0) -> np.ndarray:
    """Branching vessels, 0 … 1, float32, from ``roots`` (N, 2): ``width`` and ``length`` in units."""
    image = np.zeros(grid.shape, np.uint8)
    waiting = [(root, float(rng.uniform(0, 2 * np.pi)), width, length) for root in roots]
    while waiting:
        point, angle, width, length = waiting.pop()
        steps = max(int(length / 0.03), 2)
        angles = angle + np.cumsum(rng.normal(0, 0.22, steps))
        line = point + 0.03 * np.cumsum(np.stack([np.cos(angles), np.sin(angles)], 1), 0)
        thick = max(round(width * grid.scale), 1)
        strength = int(255 * min(1.0, max(width * grid.scale, 0.35)))
        cv2.polylines(image, [grid.pixels(line)], False, strength, thick, cv2.LINE_AA, SHIFT)
        if width * grid.scale > 0.6:
            for branch in rng.integers(1, steps, 3):
                turn = float(rng.choice([-1, 1]) * rng.uniform(0.4, 1.0))
                waiting.append((line[branch], float(angles[branch]) + turn, width * 0.6, length * 0.5))
    return cv2.GaussianBlur(image, (3, 3), 0.6).astype(np.float32) / 255


def soften(field: np.ndarray, pixels: float) -> np.ndarray:
    """``field`` smoothed by a Gaussian of many ``pixels``, at a quarter of the size."""
    rows, columns = field.shape
    small = cv2.resize(field, (max(columns // 4, 1), max(rows // 4, 1)), interpolation=cv2.INTER_AREA)
    return cv2.resize(cv2.GaussianBlur(small, (0, 0), pixels / 4), (columns, rows), interpolation=cv2.INTER_LINEAR)


def tubes(grid: Plane, lines: Sequence[np.ndarray], width: float) -> np.ndarray:
    """Depth of each pixel in tubes along ``lines``, each (N, 2): 1 on an axis, 0 at an edge, negative outside.

    Where all of the lines are out of sight it is minus infinity.
    """
    image = np.full(grid.shape, 255, np.uint8)
    cv2.polylines(image, [grid.pixels(line) for line in lines], False, 0, 1, cv2.LINE_8, SHIFT)
    with np.errstate(over="ignore"):  # the distance from nothing is the largest number there is
        return 1 - cv2.distanceTransform(image, cv2.DIST_L2, 3) / np.float32(width * grid.scale)
