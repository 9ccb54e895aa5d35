"""Place of each pixel of a frontal radiograph in the patient, and projection of thin structures onto it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import ndimage


@dataclass(frozen=True)
class View:
    """The image plane of one exposure.

    Positions are those of the phantom: mm in RAS+, the patient's right at the left of the image, the head on top.
    """

    shape: tuple[int, int]  # rows and columns
    pixel: float  # mm of the phantom
    centre: tuple[float, float]  # x and z in mm of the middle of the image
    tilt: float  # rotation of the patient in the image plane, radians
    turn: float  # rotation about the body's long axis, radians; shifts what lies in front against what lies behind
    front_far: float  # share by which the chest's front is magnified against its back; negative for the opposite

    @cached_property
    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """x and z in mm of every pixel, each of the image's shape, float32."""
        rows, cols = (np.arange(n, dtype=np.float32) - (n - 1) / 2 for n in self.shape)
        right, up = -cols[None, :] * self.pixel, -rows[:, None] * self.pixel
        cos, sin = np.float32(np.cos(self.tilt)), np.float32(np.sin(self.tilt))
        return cos * right + sin * up + self.centre[0], cos * up - sin * right + self.centre[1]

    def place(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fractional rows and columns, each (N,), of positions (N, 3) in mm."""
        x, y, z = points.T
        larger = 1 + self.front_far * y / 100
        x, z = (x + np.sin(self.turn) * (y + 20) - self.centre[0]) * larger, (z - self.centre[1]) * larger
        right, up = np.cos(self.tilt) * x - np.sin(self.tilt) * z, np.cos(self.tilt) * z + np.sin(self.tilt) * x
        return (self.shape[0] - 1) / 2 - up / self.pixel, (self.shape[1] - 1) / 2 - right / self.pixel

    def splat(self, points: np.ndarray, volume: np.ndarray) -> np.ndarray:
        """Thickness in mm, the image's shape, of specks of ``volume`` (N,) mm3 at ``points`` (N, 3)."""
        rows, cols = self.place(points)
        top, left = np.floor(rows).astype(np.int64), np.floor(cols).astype(np.int64)
        down, along = rows - top, cols - left
        total = np.zeros(self.shape[0] * self.shape[1])
        for r, vertical in ((top, 1 - down), (top + 1, down)):
            for c, horizontal in ((left, 1 - along), (left + 1, along)):
                seen = (r >= 0) & (r < self.shape[0]) & (c >= 0) & (c < self.shape[1])
                share = (vertical * horizontal * volume)[seen]
                total += np.bincount(r[seen] * self.shape[1] + c[seen], share, total.size)
        return (total.reshape(self.shape) / self.pixel**2).astype(np.float32)

    def tubes(self, points: np.ndarray, radii: np.ndarray, density: np.ndarray, step: float) -> np.ndarray:
        """Thickness in mm, the image's shape, of full tubes: ``points`` (N, 3) every ``step`` mm, ``radii`` (N,) in mm.

        ``density`` (N,) is what to multiply the thickness with; negative for air.
        """
        total = np.zeros(self.shape, dtype=np.float32)
        groups = np.rint(1.2 * np.log2(np.maximum(radii, 0.5)))
        for group in np.unique(groups):
            part = groups == group
            thin = self.splat(points[part], np.pi * radii[part] ** 2 * step * density[part])
            total += self.blur(thin, 0.5 * 2 ** (group / 1.2))
        return total

    def blur(self, image: np.ndarray, width: float) -> np.ndarray:
        """``image`` smoothed by a Gaussian of ``width`` mm."""
        return ndimage.gaussian_filter(image, width / self.pixel, truncate=3.0)

    def noise(self, rng: np.random.Generator, length: float) -> np.ndarray:
        """A random field of unit spread that varies over ``length`` mm; float32, the image's shape."""
        size = max(length / self.pixel, 1.0)
        step = max(int(size / 2), 1)  # coarse first: a wide Gaussian costs as much as its width
        shape = tuple(-(-n // step) + 3 for n in self.shape)
        field = ndimage.gaussian_filter(rng.standard_normal(shape, dtype=np.float32), 0.5 * size / step)
        if step > 1:
            field = ndimage.zoom(field, step, order=1)
        field = field[step : step + self.shape[0], step : step + self.shape[1]]
        return field / np.float32(field.std() + 1e-6)
