"""The one CT series of a folder, or a list to choose from."""

import numpy as np
import pydicom
import pytest

from fedmed.data.dicom_find import find_series
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


def test_several_series_are_listed_to_choose_from(tmp_path, write_dicom):
    write_dicom(tmp_path, STORED, series=1)
    for path in list(tmp_path.iterdir()):
        path.rename(tmp_path / f"a_{path.name}")
    write_dicom(tmp_path, STORED[:, :, :3], series=2)
    with pytest.raises(
        DataError, match=r"2 CT series; choose by --series UID: 1.2.3.1 \(no description, 6 slices\); 1.2.3.2"
    ):
        find_series(tmp_path)
    assert len(find_series(tmp_path, "1.2.3.2")) == 3
    with pytest.raises(DataError, match="no CT series 1.2.3.9; choose by --series UID: 1.2.3.1"):
        find_series(tmp_path, "1.2.3.9")


def test_folders_without_a_series(tmp_path, write_dicom, capfd):
    with pytest.raises(DataError, match="cannot be read .*correct the path"):
        find_series(tmp_path / "nowhere")
    with pytest.raises(DataError, match="is empty"):
        find_series(tmp_path)
    (tmp_path / "notes.txt").write_text("not DICOM")
    with pytest.raises(DataError, match="holds no DICOM series"):
        find_series(tmp_path)
    assert not capfd.readouterr().err, "ITK has its own words for this, which help nobody"
    write_dicom(tmp_path, STORED, modality="MR")
    with pytest.raises(DataError, match="modality is MR, not CT"):
        find_series(tmp_path)


def test_a_slice_that_cannot_be_read_is_not_passed_over(tmp_path, write_dicom):
    write_dicom(tmp_path, STORED)
    last = tmp_path / "slice006.dcm"
    last.write_bytes(last.read_bytes()[:-20])
    with pytest.raises(DataError, match=f"{tmp_path}: {last.name} belongs to the series and is damaged"):
        find_series(tmp_path)
