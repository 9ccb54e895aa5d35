"""A mask becomes a DICOM segmentation that lies, slice for slice, on the series it was drawn on."""

import highdicom as hd
import numpy as np
import pydicom
import pytest

from fedmed.data.dicom_results import Producer, find_series, segmentation, source_slices
from fedmed.data.prepare.dicom import read_series
from fedmed.data.structure import Structure
from fedmed.errors import DataError

STORED = np.random.default_rng(3).integers(0, 2000, (7, 5, 6)).astype(np.uint16)
DENSE = 1000  # stored value above which a voxel belongs to the mask
LESION = Structure(
    name="covid_region",
    label="COVID-19 lesion",
    colour="#ff9a2e",
    code={"value": "52988006", "meaning": "Lesion"},
    category={"value": "49755003", "meaning": "Morphologically Abnormal Structure"},
    anatomy={"value": "39607008", "meaning": "Lung"},
)
LUNG = Structure(name="lung", label="lungs", code={"value": "39607008", "meaning": "Lung"})
AIRWAY = Structure(name="airway")
MODEL = Producer("covid_ct_segmentation", "0.2.0+1a2b3c4d", "9f8e7d6c5b4a3210")


def place(folder, orientation: list[int], step: float) -> None:
    """Turn a series: in-plane axes as given, slices ``step`` mm apart along their normal."""
    normal = np.cross(orientation[:3], orientation[3:])
    for path in folder.iterdir():
        head = pydicom.dcmread(path)
        head.ImageOrientationPatient = orientation
        head.ImagePositionPatient = list(np.array([-3.0, 7.0, 11.0]) + step * (head.InstanceNumber - 1) * normal)
        head.save_as(path)


def segmented(folder, structures=(LESION,), mask=None):
    files = find_series(folder)
    array, affine, *_ = read_series(files)
    mask = (array + 1024 > DENSE).astype(np.uint8) if mask is None else mask
    return segmentation(source_slices(files), mask, affine, structures, MODEL)


def frames(result, path) -> dict[tuple[str, int], np.ndarray]:
    """(source slice, segment) -> its frame (rows, columns), from a file that pydicom reads."""
    result.save_as(path)
    image = pydicom.dcmread(path)
    pixels = image.pixel_array.reshape(-1, image.Rows, image.Columns)
    shared = image.SharedFunctionalGroupsSequence[0]  # holds the segment of a file that has only one
    marked = {}
    for group, frame in zip(image.PerFrameFunctionalGroupsSequence, pixels, strict=True):
        (source,) = group.DerivationImageSequence[0].SourceImageSequence
        holder = group if "SegmentIdentificationSequence" in group else shared
        segment = holder.SegmentIdentificationSequence[0].ReferencedSegmentNumber
        marked[source.ReferencedSOPInstanceUID, segment] = frame
    return marked


@pytest.mark.parametrize(
    ("orientation", "step"),
    [
        ([1, 0, 0, 0, 1, 0], 2.5),
        ([1, 0, 0, 0, 1, 0], -2.5),  # head first: the first slice is the highest
        ([-1, 0, 0, 0, -1, 0], 2.5),  # prone
        ([1, 0, 0, 0, -1, 0], 1.0),
        ([1, 0, 0, 0, 0, -1], 2.5),  # coronal
        ([0, 1, 0, 0, 0, -1], -4.0),  # sagittal
    ],
)
def test_every_frame_marks_its_own_slice(tmp_path, write_dicom, orientation, step):
    write_dicom(tmp_path / "ct", STORED)
    place(tmp_path / "ct", orientation, step)
    marked = frames(segmented(tmp_path / "ct"), tmp_path / "seg.dcm")
    slices = {str(head.SOPInstanceUID): head for head in map(pydicom.dcmread, (tmp_path / "ct").iterdir())}
    assert marked.keys() == {(uid, 1) for uid in slices}
    for (uid, _), frame in marked.items():
        assert np.array_equal(frame, slices[uid].pixel_array > DENSE)
    groups = pydicom.dcmread(tmp_path / "seg.dcm").PerFrameFunctionalGroupsSequence
    for group in groups:
        uid = group.DerivationImageSequence[0].SourceImageSequence[0].ReferencedSOPInstanceUID
        position = group.PlanePositionSequence[0].ImagePositionPatient
        assert np.allclose(position, slices[uid].ImagePositionPatient, atol=1e-4)


def test_slices_without_a_finding_are_left_out(tmp_path, write_dicom):
    write_dicom(tmp_path / "ct", STORED)
    mask = np.zeros(STORED.shape, np.uint8)
    mask[2, 3, 4] = 1
    marked = frames(segmented(tmp_path / "ct", mask=mask), tmp_path / "seg.dcm")
    assert list(marked) == [("1.2.3.1.5", 1)]
    assert marked["1.2.3.1.5", 1].sum() == marked["1.2.3.1.5", 1][3, 2] == 1


def test_an_empty_mask_is_a_segmentation_of_empty_slices(tmp_path, write_dicom):
    write_dicom(tmp_path / "ct", STORED)
    marked = frames(segmented(tmp_path / "ct", mask=np.zeros(STORED.shape, np.uint8)), tmp_path / "seg.dcm")
    assert len(marked) == 6 and not any(frame.any() for frame in marked.values())


def test_segments_are_named_and_coded(tmp_path, write_dicom):
    write_dicom(tmp_path / "ct", STORED)
    mask = (STORED > DENSE).astype(np.uint8) + (STORED > 1500)
    result = segmented(tmp_path / "ct", (LESION, AIRWAY), mask)
    lesion, unknown = result.SegmentSequence
    assert (lesion.SegmentLabel, lesion.SegmentNumber, lesion.SegmentAlgorithmType) == (LESION.label, 1, "AUTOMATIC")
    colour = hd.color.CIELabColor.from_dicom_value(lesion.RecommendedDisplayCIELabValue).to_rgb()
    assert np.allclose(colour, (0xFF, 0x9A, 0x2E), atol=1) and "RecommendedDisplayCIELabValue" not in unknown
    assert result.SeriesDescription.startswith("COVID-19 lesion, airway")
    assert lesion.SegmentedPropertyCategoryCodeSequence[0].CodeValue == "49755003"
    assert lesion.SegmentedPropertyTypeCodeSequence[0].CodeMeaning == "Lesion"
    assert lesion.AnatomicRegionSequence[0].CodeMeaning == "Lung"
    assert unknown.SegmentedPropertyTypeCodeSequence[0].CodeMeaning == "Tissue"
    algorithm = lesion.SegmentationAlgorithmIdentificationSequence[0]
    assert (algorithm.AlgorithmName, algorithm.AlgorithmVersion) == (MODEL.name, MODEL.version)
    assert (result.SoftwareVersions, result.DeviceSerialNumber) == (MODEL.version, MODEL.weights)
    marked = frames(result, tmp_path / "seg.dcm")
    assert np.array_equal(marked["1.2.3.1.3", 2], (STORED[:, :, 2] > 1500).T)


def test_a_lung_is_no_lesion(tmp_path, write_dicom):
    write_dicom(tmp_path / "ct", STORED)
    (lung,) = segmented(tmp_path / "ct", (LUNG,)).SegmentSequence
    coded = (lung.SegmentedPropertyCategoryCodeSequence[0], lung.SegmentedPropertyTypeCodeSequence[0])
    assert lung.SegmentLabel == "lungs"
    expected = [("91723000", "SCT", "Anatomical Structure"), ("39607008", "SCT", "Lung")]
    assert [(code.CodeValue, code.CodingSchemeDesignator, code.CodeMeaning) for code in coded] == expected
    assert "AnatomicRegionSequence" not in lung


def test_patient_and_study_are_the_source_s(tmp_path, write_dicom, change_dicom):
    write_dicom(tmp_path / "ct", STORED, patient="MRN-7", series=3)
    patient = {"PatientName": "Müller^Jörg", "PatientSex": "U", "StudyDate": "20240102"}
    change_dicom(tmp_path / "ct", SpecificCharacterSet="ISO_IR 100", **patient)
    segmented(tmp_path / "ct").save_as(tmp_path / "seg.dcm")
    result = pydicom.dcmread(tmp_path / "seg.dcm")
    assert (result.PatientID, str(result.PatientName), result.StudyDate) == ("MRN-7", "Müller^Jörg", "20240102")
    assert (result.StudyInstanceUID, result.FrameOfReferenceUID) == ("1.2.3", "1.2.3.99")
    assert (result.Modality, result.SeriesNumber) == ("SEG", 1003)
    assert result.SeriesInstanceUID != "1.2.3.3"
    assert result.PatientSex == "" and result.AccessionNumber == ""  # not in the standard's list; not in the source


def test_what_cannot_be_segmented_is_refused(tmp_path, write_dicom, change_dicom):
    write_dicom(tmp_path / "ct", STORED)
    files = find_series(tmp_path / "ct")
    mask, affine, *_ = read_series(files)
    with pytest.raises(DataError, match="single-frame slices"):
        source_slices(files[:1])
    slices = source_slices(files)
    with pytest.raises(DataError, match=r"shape \(7, 5, 5\), the series \(7, 5, 6\)"):
        segmentation(slices, mask[:, :, 1:], affine, [AIRWAY], MODEL)
    with pytest.raises(DataError, match="slice 1 of the mask lies 5 mm away from 1.2.3.1.1"):
        segmentation(slices, mask, affine + np.eye(4)[:, [3, 3, 3, 2]] * [0, 0, 0, 5], [AIRWAY], MODEL)
    with pytest.raises(DataError, match="the value 2, but names only airway"):
        segmentation(slices, np.full(STORED.shape, 2), affine, [AIRWAY], MODEL)
    change_dicom(tmp_path / "ct", FrameOfReferenceUID=None)
    with pytest.raises(DataError, match="has no FrameOfReferenceUID"):
        source_slices(files)
