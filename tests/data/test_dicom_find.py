"""The one CT series of a folder, or a list to choose from."""

import shutil

import numpy as np
import pydicom
import pytest

from fedmed.data.dicom_results import find_series
from fedmed.errors import DataError

STORED = np.random.default_rng(3).integers(0, 2000, (7, 5, 6)).astype(np.uint16)


def test_the_only_ct_series_is_found_among_others(tmp_path, write_dicom):
    write_dicom(tmp_path, STORED[:, :, :3], series=2)
    for path in list(tmp_path.iterdir()):
        head = pydicom.dcmread(path)
        head.Modality = "MR"
        head.save_as(tmp_path / f"mr_{path.name}")
        path.unlink()
    write_dicom(tmp_path, STORED)
    (tmp_path / "notes.txt").write_text("not DICOM")
    assert [path.name for path in find_series(tmp_path)] == [f"slice{n:03d}.dcm" for n in (6, 5, 4, 3, 2, 1)]


@pytest.fixture
def folder(tmp_path):
    """A folder with no other test's series beside it."""
    (tmp_path / "series").mkdir()
    return tmp_path / "series"


def rename(folder, prefix):
    for path in list(folder.iterdir()):
        path.rename(folder / f"{prefix}_{path.name}")


def test_several_series_are_listed_to_choose_from(folder, write_dicom):
    write_dicom(folder, STORED, series=1)
    rename(folder, "a")
    write_dicom(folder, STORED[:, :, :3], series=2)
    with pytest.raises(DataError, match=r"2 CT series; .*--series UID: 1.2.3.1 \(no description, 6 slices .*; 1.2.3.2"):
        find_series(folder)
    assert len(find_series(folder, "1.2.3.2")) == 3
    with pytest.raises(DataError, match="no CT series 1.2.3.9; choose by --series UID: 1.2.3.1"):
        find_series(folder, "1.2.3.9")


def test_folders_without_a_series(tmp_path, write_dicom, capfd):
    with pytest.raises(DataError, match="cannot be read .*correct the path"):
        find_series(tmp_path / "nowhere")
    with pytest.raises(DataError, match="is empty"):
        find_series(tmp_path)
    (tmp_path / "notes.txt").write_text("not DICOM")
    with pytest.raises(DataError, match="holds no DICOM series"):
        find_series(tmp_path)
    with pytest.raises(DataError, match="is a file; give the folder .*the bundle's own inference"):
        find_series(tmp_path / "notes.txt")
    write_dicom(tmp_path / "patient" / "series 2", STORED)
    with pytest.raises(DataError, match="not one above it, such as .*/patient/series 2; "):
        find_series(tmp_path)
    assert not capfd.readouterr().err, "ITK has its own words for this, which help nobody"
    write_dicom(tmp_path, STORED, modality="MR")
    with pytest.raises(DataError, match="modality is MR, not CT"):
        find_series(tmp_path)


def test_two_volumes_of_one_uid_are_chosen_by_number(folder, write_dicom, change_dicom):
    write_dicom(folder, STORED, series=1)
    rename(folder, "a")
    change_dicom(folder, SliceThickness=1)
    (folder / "b").mkdir()
    write_dicom(folder / "b", STORED[:, :, :3], series=1)
    change_dicom(folder / "b", SliceThickness=5)
    for path in list((folder / "b").iterdir()):
        path.rename(folder / path.name)
    for uid in (None, "1.2.3.1"):
        with pytest.raises(DataError, match=r"2 volumes under one UID; .*1\.2\.3\.1:1 \(.*1\.2\.3\.1:2 \("):
            find_series(folder, uid)
    sizes = {len(find_series(folder, f"1.2.3.1:{number}")) for number in (1, 2)}
    assert sizes == {6, 3}
    with pytest.raises(DataError, match="no CT series 1.2.3.1:3"):
        find_series(folder, "1.2.3.1:3")


def test_screenshots_in_the_folder_are_no_series_to_choose(folder, write_dicom, change_dicom):
    write_dicom(folder, STORED[:, :, :2], series=2)
    change_dicom(folder, SOPClassUID="1.2.840.10008.5.1.4.1.1.7")
    rename(folder, "shot")
    write_dicom(folder, STORED, series=1)
    assert len(find_series(folder)) == 6


def test_half_a_series_is_refused_and_its_copy_is_none(tmp_path, write_dicom):
    for name in ("a", "copy"):
        (tmp_path / name).mkdir()
        write_dicom(tmp_path / name, STORED, series=1)
    assert len(find_series(tmp_path / "a")) == 6
    shutil.rmtree(tmp_path / "copy")
    (tmp_path / "b").mkdir()
    for path in sorted((tmp_path / "a").iterdir())[3:]:
        path.rename(tmp_path / "b" / path.name)
    for half, other in (("a", "b"), ("b", "a")):
        with pytest.raises(DataError, match=f"the series goes on in {tmp_path / other}; put all its slices"):
            find_series(tmp_path / half)
