"""Things on the patient or printed on the film: leads, tubes, side marks, the collimator's border."""

import numpy as np

from fedmed_demo.grid import Position
from fedmed_demo.tubes import polyline
from fedmed_demo.xray.sitter import Sitter
from fedmed_demo.xray.view import View

LETTERS = {
    "R": ("11110", "10001", "10001", "11110", "10100", "10010", "10001"),
    "L": ("10000", "10000", "10000", "10000", "10000", "10000", "11111"),
    "A": ("01110", "10001", "10001", "11111", "10001", "10001", "10001"),
    "P": ("11110", "10001", "10001", "11110", "10000", "10000", "10000"),
}


def bedside(rng: np.random.Generator, sitter: Sitter, view: View) -> np.ndarray:
    """Electrodes with their leads, and now and then a tube or a central line, as mm of water."""
    s, h = sitter.patient.scale, sitter.patient.height
    total = np.zeros(view.shape, dtype=np.float32)
    if rng.random() < 0.75:
        spots = [(90, 0.82), (-95, 0.80), (-88, 0.12), (70, 0.10), (-20, 0.45)][: int(rng.integers(2, 6))]
        for x, z in spots:
            start = (x * s + rng.normal(0, 12), 90.0, z * h + rng.normal(0, 12))
            total += _disc(view, start, 6.0) * 12 + _disc(view, start, 2.5) * 40
            end = (float(rng.choice([-190, 190])), 90.0, rng.uniform(-0.3, 1.3) * h)
            total += _wire(rng, view, start, end, 0.8, 28.0, 45.0)
    if rng.random() < 0.3:  # a tube in the trachea
        total += _wire(rng, view, (3, -5, h + 70), (2, -18, 0.74 * h), 2.6, 3.0, 4.0)
    if rng.random() < 0.35:  # a line into the upper caval vein
        side = float(rng.choice([-1, 1]))
        middle = (side * 62 * s, 40, 0.95 * h)
        total += _wire(rng, view, middle, (22 * s, 15, 0.66 * h), 0.9, 12.0, 12.0)
    if rng.random() < 0.25:  # a tube to the stomach
        total += _wire(rng, view, (-3, -30, h + 70), (-10, -16, 0.10 * h), 1.5, 7.0, 5.0)
    return total


def _disc(view: View, at: Position, radius: float) -> np.ndarray:
    row, col = (float(v[0]) for v in view.place(np.array([at], dtype=float)))
    rows, cols = (np.arange(n, dtype=np.float32) - place for n, place in zip(view.shape, (row, col), strict=True))
    away = np.sqrt(rows[:, None] ** 2 + cols[None, :] ** 2) * view.pixel
    return np.clip((radius - away) / view.pixel + 0.5, 0, 1)


def _wire(
    rng: np.random.Generator, view: View, start: Position, end: Position, radius: float, dense: float, bend: float
) -> np.ndarray:
    """A curved tube between two points, ``dense`` times as dense as water."""
    ends = np.asarray([start, end], dtype=float)
    t = np.linspace(0, 1, 24)[:, None]
    bow = rng.normal(0, bend, 3) * np.sin(np.pi * t) + rng.normal(0, 0.4 * bend, 3) * np.sin(2 * np.pi * t)
    line, radii = polyline(ends[0] * (1 - t) + ends[1] * t + bow, [radius] * 24, 1.0)
    return dense * view.blur(view.splat(line, np.pi * radii**2), max(0.5 * radius, 0.45 * view.pixel))


def stamp(image: np.ndarray, text: str, row: int, col: int, size: int, grey: float) -> None:
    """Print ``text`` into ``image`` (0 … 1) in place, its upper left corner at (row, col), dots of ``size`` pixels."""
    for letter in text:
        dots = np.array([[int(dot) for dot in line] for line in LETTERS[letter]], dtype=bool)
        dots = np.kron(dots, np.ones((size, size), dtype=bool))
        part = image[row : row + dots.shape[0], col : col + dots.shape[1]]
        part[dots[: part.shape[0], : part.shape[1]]] = grey
        col += dots.shape[1] + size


def collimate(rng: np.random.Generator, image: np.ndarray, limit: float) -> None:
    """Darken, in place, what the collimator covers: at each edge up to ``limit`` of the image, slightly oblique."""
    rows, cols = np.ogrid[: image.shape[0], : image.shape[1]]
    for axis, places in ((0, rows), (1, cols)):
        other = (cols if axis == 0 else rows) - image.shape[1 - axis] / 2
        slant = float(rng.normal(0, 0.012))
        for end in (places, image.shape[axis] - 1 - places):
            width = float(rng.uniform(-0.6, 1.0)) * limit * image.shape[axis]
            image *= np.clip((end - width - slant * other) / 1.5, 0, 1).astype(np.float32)
