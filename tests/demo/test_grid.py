"""The drawing tools against slow and obvious references."""

import numpy as np
import pytest

from fedmed_demo.grid import Grid, ellipsoid, occupancy, smooth_min, smooth_noise

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
