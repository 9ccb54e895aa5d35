"""Draw the pieces of instruments into a picture and its mask: metal and plastic in the light of the camera."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from fedmed_demo.surgery.instruments import NEARER, Piece
from fedmed_demo.surgery.texture import SHIFT, Plane, rgb
from fedmed_demo.surgery.working_ends import SHAFT, Shape

STEPS = 64  # of a table of brightness from one side of a cylinder to the other


@dataclass(frozen=True)
class Material:
    """Brightness (STEPS,) from one side to the other, 0 … 255 and above, and red, green, blue for a brightness of 1."""

    light: np.ndarray
    tint: np.ndarray


def _material(base: float, shine: Sequence[tuple[float, float, float]], tint: tuple[float, float, float]) -> Material:
    """A cylinder: ``shine`` has place (-1 … 1), width and strength of each reflection."""
    u = np.linspace(-1, 1, STEPS)
    light = base * (0.45 + 0.55 * np.sqrt(1 - 0.92 * u * u))
    for place, width, strength in shine:
        light = light + strength * np.exp(-(((u - place) / width) ** 2))
    return Material((255 * light).astype(np.float32), np.array(tint, np.float32))


MATERIALS: Mapping[str, Material] = {
    "steel": _material(0.42, ((-0.35, 0.16, 0.5), (0.45, 0.12, 0.22)), (1.0, 0.98, 0.97)),
    "grey": _material(0.34, ((-0.25, 0.35, 0.22),), (1.0, 0.99, 0.97)),
    "black": _material(0.10, ((-0.3, 0.18, 0.28), (0.5, 0.2, 0.08)), (1.0, 0.97, 0.97)),
    "white": _material(0.62, ((-0.3, 0.4, 0.28),), (1.0, 0.98, 0.95)),
    "hole": _material(0.06, (), (1.0, 0.9, 0.9)),
    "film": _material(0.45, ((-0.5, 0.08, 0.5), (0.1, 0.06, 0.4), (0.6, 0.1, 0.3)), (1.0, 0.96, 0.9)),
    "load": _material(0.40, ((-0.3, 0.2, 0.2),), (1.0, 0.75, 0.62)),
}


class Drawing:
    """One frame: ``image`` (H, W, 3) float32, 0 … 255, and what covers each pixel."""

    def __init__(self, image: np.ndarray, height: np.ndarray, grid: Plane, grain: np.ndarray) -> None:
        self.image, self.height, self.grid, self.grain = image, height, grid, grain
        self.mask = np.zeros(grid.shape, np.uint8)  # place in PARTS
        self.owner = np.zeros(grid.shape, np.uint8)  # number of the instrument, counted from 1
        self.shadow = np.zeros(grid.shape, np.uint8)

    def add(self, pieces: Sequence[Piece], number: int, near: float, light: float) -> None:
        """Draw one instrument; tissue that is higher than its tip covers the tip."""
        for part in pieces:
            self._piece(part, number, near, light)

    def cast(self, pieces: Sequence[Piece], near: float) -> None:
        """Remember the shadow of an instrument, beside it by as much as it is above the tissue."""
        move = np.array((0.035, 0.055)) * (0.4 + near)
        for part in pieces:
            cv2.fillPoly(self.shadow, [self.grid.pixels(part.outline + move)], 255, cv2.LINE_8, SHIFT)

    def darken(self) -> None:
        """Lay the shadows, softened, onto what has been drawn so far."""
        if self.shadow.any():
            rows, columns = self.grid.shape
            small = cv2.resize(self.shadow, (columns // 4, rows // 4), interpolation=cv2.INTER_AREA)
            soft = cv2.resize(cv2.blur(small, (5, 5)), (columns, rows), interpolation=cv2.INTER_LINEAR)
            self.image *= rgb(1 - np.float32(0.5 / 255) * soft)

    def _piece(self, part: Piece, number: int, near: float, light: float) -> None:
        window = self._window(part.outline)
        if window is None:
            return
        top, bottom, left, right = window
        area = np.s_[top:bottom, left:right]
        x, y = self.grid.axes
        x, y = x[:, left:right] - np.float32(part.origin[0]), y[top:bottom] - np.float32(part.origin[1])
        cos, sin = np.float32(np.cos(part.angle) / part.half), np.float32(np.sin(part.angle) / part.half)
        along, across = cos * x + sin * y, cos * y - sin * x
        alpha = self._cover(part, window)
        if part.shape.value != SHAFT:
            hidden = self.height[area] - np.float32(near + 0.25) + np.float32(0.03) * np.minimum(along, 0)
            alpha *= np.clip(1 - 12 * hidden, 0, 1)
        else:
            across /= 1 - np.float32(NEARER) * np.minimum(along, 0)
        tone = (
            alpha * _shade(part.shape, along, across) * (np.float32(light) * (1 + np.float32(0.07) * self.grain[area]))
        )
        image = self.image[area]
        image *= rgb(1 - alpha)
        image += cv2.merge([tone * share for share in MATERIALS[part.shape.material].tint])
        covered = alpha > 0.5
        self.mask[area][covered], self.owner[area][covered] = part.shape.value, number

    def _cover(self, part: Piece, window: tuple[int, int, int, int]) -> np.ndarray:
        """Share of each pixel of a window that a piece covers, were it alone."""
        top, bottom, left, right = window
        stamp = np.zeros((bottom - top, right - left), np.uint8)
        rings = [self.grid.pixels(ring) - (np.array((left, top)) << SHIFT) for ring in (part.outline, *part.holes)]
        cv2.fillPoly(stamp, rings, 255, cv2.LINE_AA, SHIFT)
        return stamp.astype(np.float32) * np.float32((1 - part.shape.clear) / 255)

    def _window(self, outline: np.ndarray) -> tuple[int, int, int, int] | None:
        """Rows and columns that hold a polygon, cut to the frame; None outside of it."""
        middle = (np.array(self.grid.shape[::-1]) - 1) / 2
        spots = outline * self.grid.scale + middle
        left, top = np.maximum(np.floor(spots.min(axis=0)).astype(int) - 1, 0)
        right, bottom = np.minimum(np.ceil(spots.max(axis=0)).astype(int) + 2, self.grid.shape[::-1])
        return (top, bottom, left, right) if top < bottom and left < right else None


def _shade(shape: Shape, along: np.ndarray, across: np.ndarray) -> np.ndarray:
    """Brightness at places in half widths along a piece and across it: a cylinder, darker towards the camera."""
    tone = MATERIALS[shape.material].light[np.clip((across + 1) * (STEPS / 2), 0, STEPS - 1).astype(np.intp)]
    tone *= 1 - np.float32(0.012) * np.clip(along, -14, 4)
    for band in shape.bands:
        tone *= np.where(np.abs(along - np.float32(band)) < 0.16, np.float32(0.45), np.float32(1))
    if shape.clear:  # folds
        tone *= 0.8 + np.float32(0.4) * np.abs(np.sin(1.3 * along + 2.2 * np.sin(0.9 * along) + 2.6 * across))
    return tone
