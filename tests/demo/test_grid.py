"""The drawing tools against slow and obvious references, and the trees that are drawn with them."""

import numpy as np
import pytest

from fedmed_demo.grid import Grid, ellipsoid, occupancy, smooth_min, smooth_noise
from fedmed_demo.tubes import polyline, tubes
from fedmed_demo.vessels import lung_tree

GRID = Grid((20, 24, 10), (2.0, 2.0, 4.0), (19.0, 23.0, -18.0), (-1, -1, 1))


def test_axes_index_and_affine_agree():
    x, y, z = GRID.axes
    corner = np.array([x[3, 0, 0], y[0, 5, 0], z[0, 0, 7]])
    assert np.allclose(GRID.affine(np.zeros(3)) @ [3, 5, 7, 1], [*corner, 1])


def test_crop_cuts_the_same_voxels():
    part, cut = GRID.crop((-5, -np.inf, 0), (9, 4, np.inf))
    whole = np.stack(np.broadcast_arrays(*GRID.axes))
    assert np.array_equal(np.stack(np.broadcast_arrays(*part.axes)), whole[(slice(None), *cut)])
    assert whole[0][cut].min() >= -5 and whole[0][cut].max() <= 9 and whole[1][cut].max() <= 4


@pytest.mark.parametrize("length", [5.0, 12.0, 60.0])
def test_smooth_noise_is_smooth_and_of_unit_spread(length):
    grid = Grid((60, 60, 30), (2.0, 2.0, 4.0), (0, 0, 0), (1, 1, 1))
    fields = np.stack([smooth_noise(np.random.default_rng(seed), grid, length) for seed in range(6)])
    assert 0.75 < fields.std() < 1.25
    assert np.abs(np.diff(fields, axis=1)).mean() < 2.2 * 2.0 / length


def test_occupancy_and_rounded_intersection_keep_their_bounds():
    depth = ellipsoid(GRID, (0, 0, 0), (12, 9, 14))
    share = occupancy(depth, 2.0)
    assert share.min() == 0 and share.max() == 1
    other = ellipsoid(GRID, (6, 0, 0), (12, 9, 14))
    assert np.all(smooth_min(depth, other, 4.0) <= np.minimum(depth, other) + 1e-5)


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
