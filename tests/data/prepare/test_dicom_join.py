"""A series that lies in several folders is one volume; two copies of a series are not joined."""

import shutil

import nibabel as nib
import numpy as np
import pytest

from fedmed.data.prepare.ct_site import prepare_site
from fedmed.errors import DataError

pytestmark = pytest.mark.usefixtures("read_here")
STORED = np.random.default_rng(0).integers(0, 2000, (8, 8, 12)).astype(np.uint16)


@pytest.fixture
def spread(tmp_path, write_dicom):
    """Twelve slices in three folders; the order of the folders is not that of the slices."""
    write_dicom(tmp_path / "whole", STORED)
    for number, path in enumerate(sorted((tmp_path / "whole").iterdir(), key=lambda path: int(path.stem[5:]))):
        target = tmp_path / "in" / "p" / f"DIR00{(number // 4 + 1) % 3}" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return tmp_path


def test_parts_of_a_series_are_joined_in_the_order_of_their_slices(spread):
    (right,) = prepare_site(spread / "whole", spread / "a", "s").cases
    prepared = prepare_site(spread / "in", spread / "b", "s")
    (joined,) = prepared.cases
    assert joined.usable and joined.case == "p" and joined.shape == right.shape
    one, other = (nib.load(*(spread / site / "prepared" / "images").iterdir()) for site in "ab")
    assert np.array_equal(one.get_fdata(), other.get_fdata()) and np.allclose(one.affine, other.affine)
    assert any("one series of several folders, joined" in line for line in prepared.sections["Worth a look"])


def test_a_gap_between_parts_is_refused(spread):
    shutil.rmtree(spread / "in" / "p" / "DIR002")  # the four slices in the middle
    with pytest.raises(DataError, match="slices are missing or unequally spaced"):
        prepare_site(spread / "in", spread / "b", "s")


def test_copies_are_not_joined(tmp_path, write_dicom):
    write_dicom(tmp_path / "in" / "a", STORED)
    shutil.copytree(tmp_path / "in" / "a", tmp_path / "in" / "b")
    cases = {case.case: case for case in prepare_site(tmp_path / "in", tmp_path / "site", "s").cases}
    assert cases["a"].usable and "same voxels as 'a'" in cases["b"].faults[0]
