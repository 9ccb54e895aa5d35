"""Frames of an Enhanced CT file lie where each of them says, with its own scale, or the file is refused."""

import numpy as np
import pydicom
import pytest
from pydicom import Dataset

from fedmed.data.prepare.dicom import read_series
from fedmed.errors import DataError

STORED = np.random.default_rng(3).integers(0, 1500, (7, 6, 5)).astype(np.uint16)


def of(**values):
    item = Dataset()
    for name, value in values.items():
        setattr(item, name, value)
    return item


@pytest.fixture
def write_enhanced(tmp_path, write_dicom):
    """Write frames of ``STORED``, (z in mm, sideways shift in mm, index) each, the scale of index k being k + 1."""

    def write(*frames):
        write_dicom(tmp_path / "classic", STORED)
        head = pydicom.dcmread(tmp_path / "classic" / "slice001.dcm")
        for name in ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "RescaleSlope"):
            delattr(head, name)
        head.SOPClassUID = "1.2.840.10008.5.1.4.1.1.2.1"
        head.NumberOfFrames = len(frames)
        plane, measures = of(ImageOrientationPatient=[1, 0, 0, 0, 1, 0]), of(PixelSpacing=[0.8, 0.7])
        head.SharedFunctionalGroupsSequence = [of(PlaneOrientationSequence=[plane], PixelMeasuresSequence=[measures])]
        head.PerFrameFunctionalGroupsSequence = [
            of(
                PlanePositionSequence=[of(ImagePositionPatient=[-10, -20 + shift, z])],
                PixelValueTransformationSequence=[of(RescaleIntercept=-1024, RescaleSlope=k + 1, RescaleType="HU")],
            )
            for z, shift, k in frames
        ]
        head.PixelData = np.stack([STORED[:, :, k].T for *_, k in frames]).astype("<u2").tobytes()
        head.save_as(tmp_path / "ct.dcm")
        return (tmp_path / "ct.dcm",)

    return write


def test_frames_are_sorted_by_position_and_scaled_each(write_enhanced):
    array, affine, *_ = read_series(write_enhanced(*((3.0 * k, 0, k) for k in (0, 2, 4, 1, 3))))
    assert np.array_equal(array, STORED * np.arange(1, 6) - 1024.0)
    assert np.allclose(affine, [[-0.7, 0, 0, 10], [0, -0.8, 0, 20], [0, 0, 3, 0], [0, 0, 0, 1]])


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([(3.0 * k, 0, k) for k in (0, 1, 3, 4)], "slices are missing"),
        ([(3.0 * k, k, k) for k in range(5)], "tilted gantry"),
        ([(3.0 * (k % 2), 0, k) for k in range(4)], "occurs twice: frame 1 of ct.dcm and frame 3 of ct.dcm"),
    ],
)
def test_irregular_frames_are_refused_as_slices_are(write_enhanced, frames, reason):
    with pytest.raises(DataError, match=reason):
        read_series(write_enhanced(*frames))


@pytest.mark.parametrize(
    ("part", "note"),
    [("CHEST", ""), ("ABDOMEN_THORAX", ""), ("CAP", ""), ("", ""), ("HEAD", "HEAD"), ("SCAPULA", "SCAPULA")],
)
def test_another_body_part_than_the_chest_is_told(tmp_path, write_dicom, change_dicom, part, note):
    write_dicom(tmp_path / "classic", STORED)
    change_dicom(tmp_path / "classic", BodyPartExamined=part)
    *_, notes = read_series(tuple(sorted((tmp_path / "classic").iterdir(), reverse=True)))
    assert notes == ([f"the body part is {note}, not the chest, as its header says"] if note else [])


def test_numbers_that_begin_late_are_told(tmp_path, write_dicom):
    write_dicom(tmp_path, np.repeat(STORED, 2, axis=2))
    files = tuple(sorted(tmp_path.iterdir(), reverse=True))
    assert not read_series(files)[3]
    assert read_series(files[5:])[3] == ["its slices are numbered 6 to 10: are those before in another folder?"]


def test_the_body_part_of_frames_is_told(write_enhanced):
    (path,) = write_enhanced(*((3.0 * k, 0, k) for k in range(5)))
    head = pydicom.dcmread(path)
    region = of(CodeValue="69536005", CodeMeaning="Head")
    head.SharedFunctionalGroupsSequence[0].FrameAnatomySequence = [of(AnatomicRegionSequence=[region])]
    head.save_as(path)
    *_, notes = read_series((path,))
    assert notes == ["the body part is HEAD, not the chest, as its header says"]
