"""Grids that are one, stored in another order of axes."""

from itertools import permutations, product

import nibabel as nib
import numpy as np
import pytest

from fedmed.data.geometry import axis_order, nifti

SHAPE = (4, 5, 6)
AFFINE = np.array([[-0.7, 0, 0, 40], [0, -0.8, 0, 36], [0, 0, 2, -30], [0, 0, 0, 1]])


def stored(axes, flips):
    """An array (4, 5, 6) of different numbers as a program stores it that has other axes; and its affine."""
    values = nib.Nifti1Image(np.arange(120, dtype=np.int16).reshape(SHAPE), AFFINE)
    ornt = [[axes.index(axis), -1 if axis in flips else 1] for axis in range(3)]
    return values.get_fdata(), values.as_reoriented(ornt)


@pytest.mark.parametrize("axes", list(permutations(range(3))))
def test_every_order_and_direction_of_axes_is_brought_back_voxel_by_voxel(axes):
    for flips in [{n for n in range(3) if which[n]} for which in product((0, 1), repeat=3)]:
        expected, other = stored(axes, flips)
        order = axis_order(other.affine, other.shape, AFFINE, SHAPE, 0.1)
        if axes == (0, 1, 2) and not flips:
            assert order is None
        else:
            assert np.array_equal(np.flip(other.get_fdata().transpose(order[0]), order[1]), expected)


@pytest.mark.parametrize("change", ["moved", "cropped", "scaled", "turned", "flat", "undefined"])
def test_another_grid_is_no_order_of_axes(change):
    _, other = stored((0, 1, 2), {1})
    affine, shape = other.affine.copy(), other.shape
    if change == "moved":
        affine[1, 3] += 0.8  # by a whole voxel
    elif change == "cropped":
        shape = (4, 5, 5)
    elif change == "flat":
        shape = (4, 5)
    elif change == "turned":
        affine[:2, :2] = affine[:2, :2] @ [[0.999, -0.04], [0.04, 0.999]]
    else:
        affine[0, 0] *= 1.1 if change == "scaled" else np.nan
    assert axis_order(affine, shape, AFFINE, SHAPE, 0.1) is None


@pytest.mark.parametrize("apart", [0, 40])
def test_a_mask_keeps_the_second_affine_of_its_image(apart):
    image, second = nib.Nifti1Image(np.zeros(SHAPE), AFFINE), AFFINE.copy()
    second[2, 3] += apart
    image.set_sform(AFFINE, 1)
    image.set_qform(second, 2)
    mask = nifti(np.ones(SHAPE, np.uint8), AFFINE, image.header)
    assert np.allclose(mask.get_sform(), AFFINE) and np.allclose(mask.get_qform(), second)
    assert np.allclose(nifti(np.ones(SHAPE, np.uint8), AFFINE).get_qform(), AFFINE)
