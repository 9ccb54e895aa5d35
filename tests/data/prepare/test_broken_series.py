"""A series that lost a slice, its scale or its identity is refused before any work, by both who read series."""

import shutil

import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file

from fedmed.data.prepare.ct_find import find_volumes
from fedmed.data.prepare.ct_inspect import inspect_all
from fedmed.data.prepare.dicom import read_series
from fedmed.data.prepare.dicom_folder import series_in
from fedmed.data.structure import Structure
from tests.commands import fedmed

pytestmark = pytest.mark.usefixtures("read_here")
STORED = np.random.default_rng(3).integers(0, 1500, (7, 6, 8)).astype(np.uint16)
LAST = "slice001.dcm"  # the uppermost of eight: without it the series is only shorter


@pytest.fixture
def series(tmp_path, write_dicom):
    """Folder of a series of eight slices."""
    write_dicom(tmp_path / "in" / "ct", STORED)
    return tmp_path / "in" / "ct"


@pytest.fixture
def not_inferred(tmp_path, monkeypatch, capsys):
    """Return a function: what ``infer_dicom`` says of the series, which it refuses before it infers."""
    script = fedmed("infer")
    (tmp_path / "bundle" / "models").mkdir(parents=True)
    (tmp_path / "bundle" / "models" / "model.pt").touch()
    monkeypatch.setattr("fedmed.bundles.infer.check_ready", lambda root: {"version": "1"})
    monkeypatch.setattr("fedmed.bundles.metadata_classes.segments", lambda metadata, root: [Structure(name="lung")])
    monkeypatch.setattr("fedmed.bundles.infer.infer_image", lambda *arguments, **rest: pytest.fail("it inferred"))

    def refuse():
        assert script([str(tmp_path / name) for name in ("bundle", "in/ct", "seg.dcm")]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and error.count("\n") == 1
        return error

    return refuse


@pytest.fixture
def refusals(tmp_path, not_inferred):
    """Return a function: what ``prepare_ct`` and ``infer_dicom`` say of the series, which both refuse."""

    def both():
        cases = inspect_all(find_volumes(tmp_path / "in")[0], tmp_path / "converted")
        assert not any(case.usable for case in cases) and not any(tmp_path.glob("converted/images/*"))
        return "; ".join(cases[0].faults), not_inferred()

    return both


def rename(folder):
    """Names as scanners give them, without an ending."""
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(folder / f"IM{number:04d}")


def cut(folder, length, name=LAST):
    (folder / name).write_bytes((folder / name).read_bytes()[:length])


@pytest.mark.parametrize("length", [0, 100, 300, -20])
@pytest.mark.parametrize("name", [LAST, "IM0000"])
def test_a_slice_that_is_cut_short_is_not_passed_over(series, refusals, length, name):
    if name != LAST:
        rename(series)
    cut(series, length, name)
    for text in refusals():
        assert f"{name} " in text
        assert ("belongs to the series and is damaged" if length < 0 else "may be one of its slices") in text


def test_a_folder_of_nothing_but_damaged_slices_is_told(series, refusals):
    for path in series.iterdir():
        cut(series, 300, path.name)
    assert all("none of its 8 slices can be read, the first is slice001.dcm" in text for text in refusals())


def test_a_file_at_which_itk_fails_is_told(series, refusals):
    shutil.copy(get_testdata_file("rtdose_1frame.dcm", download=False), series)
    texts = refusals()
    assert all("ITK fails at one of its files; keep one series a folder" in text for text in texts), texts


def test_other_files_beside_a_series_are_left_alone(series):
    (series / "done.txt").touch()
    (series / "VERSION").write_text("3")
    report = pydicom.dcmread(series / LAST)
    report.SOPClassUID = "1.2.840.10008.5.1.4.1.1.88.11"  # a text
    del report.PixelData, report.Rows
    report.save_as(series / "report.dcm")
    (case,) = inspect_all(find_volumes(series.parent)[0], series.parent.parent / "converted")
    assert case.usable and case.shape == (7, 6, 8)


@pytest.mark.parametrize(
    ("slices", "values", "words"),
    [
        ((), {"RescaleIntercept": None, "RescaleSlope": None}, "has no usable RescaleIntercept, RescaleSlope"),
        (("slice003.dcm",), {"RescaleIntercept": ""}, "slice003.dcm has no usable RescaleIntercept"),
        ((), {"PixelSpacing": None}, "has no usable PixelSpacing"),
        ((), {"PixelSpacing": [0, 0]}, "has no usable PixelSpacing"),
        ((), {"RescaleSlope": 0}, "has no usable RescaleSlope"),
        (("slice003.dcm",), {"PixelSpacing": [0.9, 0.9]}, "two pixel spacings in one series (slice008.dcm, slice003"),
        (("slice003.dcm",), {"PatientID": "P2"}, "two patients in one series (PatientID of slice008.dcm, slice003"),
        (("slice003.dcm",), {"StudyInstanceUID": "1.2.9"}, "two studies in one series"),
        (("slice003.dcm",), {"FrameOfReferenceUID": "1.2.9"}, "two frames of reference in one series"),
        ((), {"SOPInstanceUID": "1.2.3.4"}, "slice008.dcm and slice007.dcm share one SOPInstanceUID"),
        ((), {"RescaleType": "MGML"}, "the values are not HU: RescaleType of slice008.dcm is MGML"),
        ((), {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.7"}, "not CT images, but Secondary Capture Image Storage"),
        (("slice003.dcm",), {"AcquisitionNumber": 2}, "two acquisitions by turns in one series"),
        ((LAST,), {"SliceThickness": 5}, f"{LAST} belongs to the series, but differs in size, thickness"),
    ],
)
def test_a_series_without_its_scale_or_of_two_things_is_refused(series, refusals, change_dicom, slices, values, words):
    change_dicom(series, *slices, **values)
    for text in refusals():
        assert words in text and "P2" not in text


def test_a_doubled_slice_is_named_with_its_copy(series, refusals):
    for number, uid in enumerate(("1.9.1", "1.9.2"), start=4):
        copy = pydicom.dcmread(series / f"slice{number:03d}.dcm")
        copy.SOPInstanceUID = uid
        copy.save_as(series / f"copy{number}.dcm")
    for text in refusals():
        assert "a slice position occurs twice: copy5.dcm and slice005.dcm (and 1 more)" in text


def test_empty_identifiers_matter_to_a_segmentation_alone(series, not_inferred, change_dicom, tmp_path):
    change_dicom(series, SOPInstanceUID="")
    (case,) = inspect_all(find_volumes(tmp_path / "in")[0], tmp_path / "converted")
    assert case.usable and "no DICOM segmentation can refer to them" in case.notes[0]
    assert "slice008.dcm has no SOPInstanceUID" in not_inferred()


def test_values_that_are_not_hu_are_refused_before_inference(series, not_inferred, change_dicom):
    change_dicom(series, RescaleIntercept=-4000)
    assert "implausible HU: the brightest voxel is" in not_inferred()


def test_each_slice_has_its_own_scale(series, change_dicom):
    change_dicom(series, "slice003.dcm", RescaleIntercept=-1000, RescaleSlope=2)
    array, *_ = read_series(series_in(series)[0])
    expected = STORED.astype(int) - 1024
    expected[:, :, 5] = STORED[:, :, 5] * 2.0 - 1000
    assert np.array_equal(array, expected)


def test_an_inverted_display_does_not_invert_hu(series, change_dicom):
    change_dicom(series, PhotometricInterpretation="MONOCHROME1", BitsStored=12, HighBit=11)
    array, affine, *_ = read_series(series_in(series)[0])
    assert np.array_equal(array, STORED.astype(int) - 1024)
    assert np.allclose(affine @ (0, 0, 7, 1), (10, 20, 30 + 7 * 2.5, 1))
