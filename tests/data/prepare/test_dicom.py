"""DICOM series become NIfTI with the right affine and HU, or are refused with the reason."""

import nibabel as nib
import numpy as np
import pydicom
import pytest

from fedmed.data.prepare.ct_find import find_volumes
from fedmed.data.prepare.dicom import convert_series, read_series
from fedmed.data.prepare.dicom_folder import checked_series, series_in
from fedmed.errors import DataError

pytestmark = pytest.mark.usefixtures("read_here")
STORED = np.random.default_rng(3).integers(0, 1500, (7, 6, 5)).astype(np.uint16)


def read(folder):
    (files,) = series_in(folder)
    return read_series(files)


def test_affine_and_hu_survive_the_conversion(tmp_path, write_dicom):
    write_dicom(tmp_path / "in", STORED)
    (files,) = series_in(tmp_path / "in")
    convert_series(files, tmp_path / "out" / "a.nii.gz")
    image = nib.load(tmp_path / "out" / "a.nii.gz")
    # DICOM counts to the patient's left and back, NIfTI to the right and front.
    expected = np.array([[-0.7, 0, 0, 10], [0, -0.8, 0, 20], [0, 0, 2.5, 30], [0, 0, 0, 1]])
    assert np.allclose(image.affine, expected, atol=1e-5)
    assert image.get_data_dtype() == np.int16
    assert np.array_equal(np.asanyarray(image.dataobj), STORED.astype(int) - 1024)
    assert int(image.header["sform_code"]) == int(image.header["qform_code"]) == 1


def test_a_slope_with_a_fraction_loses_nothing(tmp_path, write_dicom):
    write_dicom(tmp_path, STORED, slope=0.5, intercept=-1000.5)
    array, *_ = read(tmp_path)
    assert array.dtype == np.float32
    assert np.allclose(array, STORED * 0.5 - 1000.5)


def test_jpeg_lossless_is_read_and_cut_short_refused(tmp_path, write_dicom, compress_dicom):
    write_dicom(tmp_path, STORED)
    for path in tmp_path.iterdir():
        compress_dicom(path)
    array, *_ = read(tmp_path)
    assert np.array_equal(array, STORED.astype(int) - 1024)
    (tmp_path / "slice001.dcm").write_bytes((tmp_path / "slice001.dcm").read_bytes()[:-30])
    ((_, fault),) = checked_series(tmp_path)
    assert fault == "slice001.dcm belongs to the series and is damaged; export the series again"


@pytest.mark.parametrize("implicit", [False, True])
def test_a_series_with_neither_preamble_nor_endings_is_found_and_read(tmp_path, write_dicom, implicit):
    write_dicom(tmp_path, STORED)
    for number, path in enumerate(sorted(tmp_path.iterdir())):
        bare = pydicom.Dataset({element.tag: element for element in pydicom.dcmread(path)})
        bare.save_as(tmp_path / f"IM{number:04d}", implicit_vr=implicit, little_endian=True, enforce_file_format=False)
        path.unlink()
    (source,), _ = find_volumes(tmp_path)
    assert source.series and not source.fault
    assert np.array_equal(read_series(source.files)[0], STORED.astype(int) - 1024)


def test_the_patient_is_a_stable_pseudonym(tmp_path, write_dicom):
    for name, patient in (("a", "Meier 12"), ("b", "Meier 12"), ("c", "Other")):
        write_dicom(tmp_path / name, STORED, patient=patient)
    first, again, other = (read(tmp_path / name)[2] for name in "abc")
    assert first == again != other and "Meier" not in first


def test_two_series_of_one_folder_are_two_volumes(tmp_path, write_dicom):
    write_dicom(tmp_path, STORED, series=1)
    for path in tmp_path.iterdir():
        path.rename(path.with_name("first_" + path.name))
    write_dicom(tmp_path, STORED[:, :, :3], series=2)
    assert sorted(len(files) for files in series_in(tmp_path)) == [3, 5]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"modality": "MR"}, "modality is MR"),
        ({"leave_out": (2,)}, "slices are missing"),
        ({"spacing": (0.7, 0.8, 0.0)}, "a slice position occurs twice"),
        ({"tilt": 0.6}, "tilted gantry"),
    ],
)
def test_an_irregular_volume_is_refused(tmp_path, write_dicom, change, reason):
    write_dicom(tmp_path, STORED, **change)
    with pytest.raises(DataError, match=reason):
        read(tmp_path)


def test_a_damaged_slice_is_refused(tmp_path, write_dicom):
    write_dicom(tmp_path, STORED)
    (files,) = series_in(tmp_path)
    files[2].write_bytes(files[2].read_bytes()[:400])
    with pytest.raises(DataError):
        read_series(files)
