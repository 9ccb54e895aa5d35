"""Each reason to refuse an image or a mask."""

import re

import nibabel as nib
import numpy as np
import pytest

from fedmed.data.geometry import affine_notes, corner_distance, unit_fault
from fedmed.data.prepare.volume_faults import geometry_faults, mask_faults, proposal, value_faults, value_notes

AFFINE = np.diag([0.7, 0.7, 2.0, 1.0])
ZOOMS = (0.7, 0.7, 2.0)
SHAPE = (4, 5, 6)


def hu(low, high, dtype=np.float32):
    return np.linspace(low, high, 120).reshape(SHAPE).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "affine", "zooms", "reason"),
    [
        ((4, 5), AFFINE, (1, 1), "2D"),
        ((4, 5, 6, 2), AFFINE, (1, 1, 1, 1), "4D"),
        ((4, 5, 1), AFFINE, ZOOMS, "2D"),
        ((4, 0, 6), AFFINE, ZOOMS, "empty"),
        (SHAPE, AFFINE * np.nan, ZOOMS, "not finite"),
        (SHAPE, AFFINE, (0.7, 0.7, 0.0), "spacing of zero"),
        (SHAPE, np.diag([0.7, 0.0, 2.0, 1.0]), ZOOMS, "spacing of zero"),
    ],
)
def test_geometry_is_refused(shape, affine, zooms, reason):
    (fault,) = geometry_faults(shape, affine, zooms)
    assert reason in fault


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (hu(-1000, 400) * np.where(np.arange(120).reshape(SHAPE) == 7, np.nan, 1), "1 voxels are NaN"),
        (np.full(SHAPE, -1000), "empty"),
        (np.zeros((0, 3, 3)), "empty"),
        (hu(-1024, -501), "implausible HU"),
        (hu(-1024, 60000), "implausible HU"),
        (hu(0, 1), "0…1"),
        (hu(-0.01, 0.53), "-0.01…0.53: a mask or a normalised image"),
        (hu(-3, 4), "normalised"),
        (np.zeros(SHAPE, [("R", "u1"), ("G", "u1"), ("B", "u1")]), "not numbers"),
    ],
)
def test_values_are_refused(values, reason):
    (fault,) = value_faults(values)
    assert reason in fault


def test_a_ct_is_accepted_and_a_picture_is_noted():
    assert value_faults(hu(-1024, 3071, np.int16)) == value_notes(hu(-1024, 3071)) == []
    assert value_faults(hu(0, 255)) == []
    assert "8-bit" in value_notes(hu(0, 255))[0]
    assert all("rescale intercept" in value_notes(hu(low, high))[0] for low, high in ((0, 4095), (-20, 1059)))


@pytest.mark.parametrize(("unit", "fault"), [("mm", ""), ("meter", "in metres"), ("micron", "in micrometres"), (0, "")])
def test_other_units_than_millimetres_are_refused(unit, fault):
    header = nib.Nifti1Header()
    header.set_xyzt_units(unit)
    words = unit_fault(header)
    assert fault in words and bool(words) is bool(fault)
    assert unit_fault({}) == ""


@pytest.mark.parametrize(("apart", "codes", "notes"), [(40, (1, 1), 1), (0, (1, 1), 0), (40, (1, 0), 0)])
def test_a_second_affine_is_told(apart, codes, notes):
    image, other = nib.Nifti1Image(np.ones(SHAPE), np.eye(4)), np.eye(4)
    other[2, 3] = apart
    image.set_sform(np.eye(4), codes[0])
    image.set_qform(other, codes[1])
    words = affine_notes(image.header)
    assert len(words) == notes and all("up to 40 mm apart; the sform is used" in note for note in words)


def test_masks_are_compared_with_their_image():
    mask = np.zeros(SHAPE, np.uint8)
    assert mask_faults(mask, AFFINE, SHAPE, AFFINE) == []
    assert "shape 4×5×6" in mask_faults(mask, AFFINE, (4, 5, 7), AFFINE)[0]
    for moved, reason in ((0.099, ""), (0.101, "0.101 mm away"), (0.5, "0.5 mm away")):  # tenths are rounding
        affine = AFFINE.copy()
        affine[2, 3] = moved
        assert reason in "; ".join(mask_faults(mask, affine, SHAPE, AFFINE))
        assert bool(mask_faults(mask, affine, SHAPE, AFFINE)) is bool(reason)
    labels = mask.copy()
    labels[0, 0, :2] = 2, 255
    assert "other than 0 and 1: 2, 255" in mask_faults(labels, AFFINE, SHAPE, AFFINE)[0]
    assert "nan" in mask_faults(np.full(SHAPE, np.nan), AFFINE, SHAPE, AFFINE)[0]


def test_the_distance_of_two_grids_is_that_of_their_farthest_corners():
    stretched = AFFINE.copy()
    stretched[1, 1] += 0.05
    assert corner_distance(AFFINE, AFFINE, SHAPE) == 0
    assert corner_distance(stretched, AFFINE, SHAPE) == pytest.approx(4 * 0.05)
    assert mask_faults(np.zeros(SHAPE, np.uint8), AFFINE * np.nan, SHAPE, AFFINE)


def mask_of(*values, counts=None):
    """A mask of zeros, and of each value as many voxels as ``counts`` says."""
    return np.concatenate([np.zeros(50), np.repeat(values, counts or [5] * len(values))])


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (mask_of(255), r"--mask-value 255$"),
        (mask_of(1, 3), r"--mask-value 1,3, or those of them"),
        (np.repeat([1, 2], 5), r"--mask-value 2$"),
        (np.full(5, 2), r"--mask-value 2$"),
        (mask_of(0.2, 0.9), r"--mask-threshold 0\.5 "),
        (mask_of(0.1, 0.3), r"--mask-threshold 0\.15 "),
        (mask_of(0.5, 99.5), r"--mask-threshold 50 "),
        (mask_of(*range(10, 250, 10), 255, counts=[1] * 24 + [100]), r"--mask-threshold 128 "),
        (mask_of(*range(1, 118)), r"which of its 117 labels count: .*--mask-value 1,2$"),
        (mask_of(-1000, 40), "looks like a scan"),
        (mask_of(np.nan), "without NaN"),
    ],
)
def test_what_counts_is_proposed_from_the_values_of_a_mask(mask, said):
    assert re.search(said, proposal(mask))
