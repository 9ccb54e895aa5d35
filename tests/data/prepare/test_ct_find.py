"""Volumes, masks and patients are found by their names."""

import numpy as np
import pytest

from fedmed.data.prepare.ct_find import find_volumes
from fedmed.errors import DataError


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_masks_in_their_own_folder(tmp_path):
    touch(tmp_path, "i/a.nii.gz", "i/x/b.nii", "i/.hidden.nii", "m/a.nii", "m/x/b.nii.gz", "m/lost.nii")
    sources, stray = find_volumes(tmp_path / "i", tmp_path / "m")
    assert [(s.case, s.mask.relative_to(tmp_path).as_posix()) for s in sources] == [
        ("a", "m/a.nii"),
        ("x_b", "m/x/b.nii.gz"),
    ]
    assert [path.name for path in stray] == ["lost.nii"]


def test_masks_below_the_images_are_not_taken_for_images(tmp_path):
    touch(tmp_path, "a.nii.gz", "mask/a.nii.gz")
    sources, _ = find_volumes(tmp_path, tmp_path / "mask")
    assert [(s.case, s.mask) for s in sources] == [("a", tmp_path / "mask" / "a.nii.gz")]


def test_masks_beside_their_images(tmp_path):
    touch(tmp_path, "a.nii.gz", "a_seg.nii.gz", "b.nii.gz", "lost_seg.nii")
    sources, stray = find_volumes(tmp_path, mask_suffix="_seg")
    assert [(s.case, s.mask and s.mask.name) for s in sources] == [("a", "a_seg.nii.gz"), ("b", None)]
    assert [path.name for path in stray] == ["lost_seg.nii"]


def test_a_mask_folder_with_a_suffix(tmp_path):
    touch(tmp_path, "i/a.nii.gz", "m/a_seg.nii.gz")
    sources, stray = find_volumes(tmp_path / "i", tmp_path / "m", "_seg")
    assert sources[0].mask == tmp_path / "m" / "a_seg.nii.gz"
    assert not stray


def test_names_in_the_manner_of_nnunet(tmp_path):
    touch(tmp_path, "imagesTr/a_0000.nii.gz", "imagesTr/notes.nii.gz", "labelsTr/a.nii.gz")
    (source,), stray = find_volumes(tmp_path / "imagesTr", tmp_path / "labelsTr", image_suffix="_0000")
    assert (source.case, source.mask.name, stray) == ("a", "a.nii.gz", [])


def test_images_and_masks_with_a_suffix_each(tmp_path):
    touch(tmp_path, "a_ct.nii.gz", "a_lung.nii.gz", "a_heart.nii.gz")
    (source,), _ = find_volumes(tmp_path, mask_suffix="_lung", image_suffix="_ct")
    assert (source.case, source.files[0].name, source.mask.name) == ("a", "a_ct.nii.gz", "a_lung.nii.gz")


def test_names_that_flatten_to_one_stay_two_cases(tmp_path):
    touch(tmp_path, "a.nii", "a.nii.gz", "x/b.nii", "x_b.nii")
    sources, _ = find_volumes(tmp_path)
    assert sorted(s.case for s in sources) == ["a", "a-2", "x_b", "x_b-2"]


def test_patients(tmp_path):
    touch(tmp_path, "anna/1.nii", "anna/2.nii", "zoe.nii")
    assert [s.patient for s in find_volumes(tmp_path)[0]] == ["zoe", "anna_1", "anna_2"]
    grouped, _ = find_volumes(tmp_path, patient_pattern="^([a-z]+)/")
    assert [s.patient for s in grouped] == ["", "anna", "anna"]
    whole, _ = find_volumes(tmp_path, patient_pattern="^[a-z]+")
    assert [s.patient for s in whole] == ["zoe", "anna", "anna"]


def test_links_to_folders_are_followed(tmp_path):
    touch(tmp_path, "disk/a.nii.gz", "disk2/a.nii.gz")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "p1").symlink_to(tmp_path / "disk")
    (tmp_path / "in" / "p1again").symlink_to(tmp_path / "disk")
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "p1").symlink_to(tmp_path / "disk2")
    (source,), stray = find_volumes(tmp_path / "in", tmp_path / "masks")
    assert (source.case, source.mask, stray) == ("p1_a", tmp_path / "masks" / "p1" / "a.nii.gz", [])
    (tmp_path / "in" / "p2").symlink_to(tmp_path / "gone")
    with pytest.raises(DataError, match="the link .*p2 leads nowhere"):
        find_volumes(tmp_path / "in")


def test_nested_dicom_series(tmp_path, write_dicom):
    stored = np.arange(60, dtype=np.uint16).reshape(5, 4, 3)
    write_dicom(tmp_path / "p1" / "ct", stored)
    touch(tmp_path, "p1/notes.txt", "p1/ct/DICOMDIR", "m/p1_ct.nii.gz")
    (source,), _ = find_volumes(tmp_path, tmp_path / "m")
    assert (source.case, source.series, len(source.files)) == ("p1_ct", True, 3)
    assert source.mask == tmp_path / "m" / "p1_ct.nii.gz"


@pytest.mark.parametrize(
    ("folder", "pattern", "message"), [("nowhere", None, "does not exist"), (".", "(", "regular expression")]
)
def test_wrong_arguments(tmp_path, folder, pattern, message):
    with pytest.raises(DataError, match=message):
        find_volumes(tmp_path / folder, patient_pattern=pattern)


def test_capital_endings_are_read_and_two_forms_of_one_name_refused(tmp_path):
    for name in ("i/A.NII.GZ", "m/A.NII", "i/b.nii", "i/b.nii.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found, others = find_volumes(tmp_path / "i", tmp_path / "m")
    assert [(source.case, source.mask and source.mask.name) for source in found][:2] == [("A", "A.NII"), ("b", None)]
    assert [source.fault for source in found][:2] == ["", ""] and not others
    assert "b.nii.gz lies beside b.nii, which is used" in found[2].fault


def test_a_case_of_a_long_path_has_a_short_name_of_its_own(tmp_path):
    folders = [f"{'x' * 80}{n}" for n in range(3)]
    for name in ("a", "b"):
        path = tmp_path.joinpath(*folders, f"{name}.nii.gz")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found, _ = find_volumes(tmp_path)
    names = [source.case for source in found]
    assert len(set(names)) == 2 and all(len(name.encode()) <= 200 for name in names)
