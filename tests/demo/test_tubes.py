"""Tubes against the brute-force union of balls, and the trees that are drawn with them."""

import numpy as np

from fedmed_demo.grid import Grid
from fedmed_demo.tubes import polyline, tubes
from fedmed_demo.vessels import lung_tree

GRID = Grid((20, 24, 10), (2.0, 2.0, 4.0), (19.0, 23.0, -18.0), (-1, -1, 1))


def test_tubes_equal_the_brute_force_union_of_balls():
    points, radii = polyline([(-12, -10, -15), (0, 4, 0), (14, 12, 16)], [6, 4, 2], step=3.0)
    x, y, z = GRID.axes
    expected = np.full(GRID.shape, -6.0)
    for (a, b, c), r in zip(points, radii, strict=True):
        height = np.maximum(np.abs(z - c) - 0.4 * 4.0, 0)
        expected = np.maximum(expected, r - np.sqrt((x - a) ** 2 + (y - b) ** 2 + height**2))
    assert np.allclose(tubes(GRID, points, radii, reach=6.0), expected, atol=1e-3)


def test_lung_tree_reaches_every_end_and_tapers():
    rng = np.random.default_rng(0)
    ends = rng.uniform(-50, 50, (80, 3)) + [80, 0, 0]
    points, radii, upright = lung_tree(rng, np.zeros(3), ends, thin=0.7, step=1.0)
    for end in ends:
        assert np.linalg.norm(points - end, axis=1).min() < 1e-6
    near, far = np.linalg.norm(points, axis=1) < 40, np.linalg.norm(points, axis=1) > 90
    assert radii[near].mean() > 1.5 * radii[far].mean()
    assert radii.min() >= 0.7 and np.all((upright >= 0) & (upright <= 1))
