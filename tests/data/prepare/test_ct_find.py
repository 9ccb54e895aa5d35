"""Volumes, masks and patients are found by their names."""

import numpy as np
import pytest

from fedmed.data.prepare.ct_find import find_volumes
from fedmed.errors import DataError

pytestmark = pytest.mark.usefixtures("read_here")


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


@pytest.mark.parametrize(
    ("folder", "files", "options", "pairs", "cases", "lost"),
    [
        ("i", "i/a.nii.gz i/x/b.nii i/.hidden.nii m/a.nii m/x/b.nii.gz m/lost.nii", {"masks": "m"},
         {"i/a.nii.gz": "m/a.nii", "i/x/b.nii": "m/x/b.nii.gz"}, "a x_b", ["m/lost.nii"]),
        ("", "a.nii.gz mask/a.nii.gz", {"masks": "mask"}, {"a.nii.gz": "mask/a.nii.gz"}, "a", []),  # below the images
        ("", "a.nii.gz a_seg.nii.gz b.nii.gz lost_seg.nii", {"mask_suffix": "_seg"},
         {"a.nii.gz": "a_seg.nii.gz", "b.nii.gz": None}, "a b", ["lost_seg.nii"]),
        ("i", "i/a.nii.gz m/a_seg.nii.gz", {"masks": "m", "mask_suffix": "_seg"},
         {"i/a.nii.gz": "m/a_seg.nii.gz"}, "a", []),
        ("i", "i/a_0000.nii.gz i/notes.nii.gz m/a.nii.gz", {"masks": "m", "image_suffix": "_0000"},
         {"i/a_0000.nii.gz": "m/a.nii.gz"}, "a", []),  # as nnU-Net names them
        ("", "a_ct.nii.gz a_lung.nii.gz a_heart.nii.gz", {"mask_suffix": "_lung", "image_suffix": "_ct"},
         {"a_ct.nii.gz": "a_lung.nii.gz"}, "a", []),
    ],
)  # fmt: skip
def test_masks_are_found_in_a_folder_and_by_suffixes(tmp_path, folder, files, options, pairs, cases, lost):
    touch(tmp_path, *files.split())
    if "masks" in options:
        options = options | {"masks": tmp_path / options["masks"]}
    sources, stray = find_volumes(tmp_path / folder, **options)
    assert {s.files[0]: s.mask for s in sources} == {
        tmp_path / image: mask and tmp_path / mask for image, mask in pairs.items()
    }
    assert stray == [tmp_path / name for name in lost] and [s.case for s in sources] == cases.split()


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


def test_wrong_arguments(tmp_path):
    with pytest.raises(DataError, match="nowhere, does not exist"):
        find_volumes(tmp_path / "nowhere")
    with pytest.raises(DataError, match="regular expression"):
        find_volumes(tmp_path, patient_pattern="(")


def test_capital_endings_are_read_and_two_forms_of_one_name_refused(tmp_path):
    touch(tmp_path, "i/A.NII.GZ", "m/A.NII", "i/b.nii", "i/b.nii.gz")
    (first, second, twice), others = find_volumes(tmp_path / "i", tmp_path / "m")
    assert (first.case, first.mask.name, second.case, second.mask, others) == ("A", "A.NII", "b", None, [])
    assert first.fault == second.fault == "" and "b.nii.gz lies beside b.nii, which is used" in twice.fault


def test_a_case_of_a_long_path_has_a_short_name_of_its_own(tmp_path):
    folders = "/".join(f"{'x' * 80}{n}" for n in range(3))
    touch(tmp_path, f"{folders}/a.nii.gz", f"{folders}/b.nii.gz")
    names = [source.case for source in find_volumes(tmp_path)[0]]
    assert len(set(names)) == 2 and all(len(name.encode()) <= 200 for name in names)
