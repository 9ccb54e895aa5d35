"""Write a mask as a DICOM segmentation (SEG) of the CT series it was drawn on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import highdicom as hd
import numpy as np
from pydicom import Dataset
from pydicom.sr.codedict import codes

from fedmed.data.prepare.dicom_headers import read_header
from fedmed.errors import DataError

# Category, type and place of a segment, for software that reads codes instead of names (DICOM CID 7150 and 7159).
ABNORMAL = codes.SCT.MorphologicallyAbnormalStructure
CODES = {
    "covid_region": (ABNORMAL, codes.SCT.Lesion, codes.SCT.Lung),
    "nodule": (ABNORMAL, codes.SCT.Nodule, codes.SCT.Lung),
}
UNKNOWN = (codes.SCT.Tissue, codes.SCT.Tissue, None)  # 3D Slicer's codes for a segment without a description
NEEDED = ("SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID", "FrameOfReferenceUID")
MAY_BE_EMPTY = (  # the standard requires them in every image, but de-identified exports often lack them
    *("PatientID", "PatientName", "PatientBirthDate", "PatientSex", "ReferringPhysicianName"),
    *("AccessionNumber", "StudyID", "StudyDate", "StudyTime"),
)
SERIES_OFFSET = 1000  # the segmentation of series 3 is series 1003, after all of the scanner's own
GRID_TOLERANCE = 0.01  # mm between a slice and its mask


@dataclass(frozen=True)
class Producer:
    """Who drew the mask: the bundle's name and version, and a digest that tells its weights from others."""

    name: str
    version: str
    weights: str


def source_slices(files: Sequence[Path]) -> list[Dataset]:
    """Return the headers of a CT series' slices, in order, with all that a segmentation copies from them.

    Raises:
        DataError: a single file, or a slice without the identifiers that a segmentation refers to.
    """
    if len(files) < 2:
        raise DataError(f"{files[0]} is a single file; a series of single-frame slices is needed, not Enhanced CT")
    return [_slice(path) for path in files]


def segmentation(
    slices: Sequence[Dataset], mask: np.ndarray, affine: np.ndarray, labels: Sequence[str], producer: Producer
) -> hd.seg.Segmentation:
    """Return a mask as a binary DICOM segmentation, ready for ``save_as``, that refers to the slices it lies on.

    Args:
        slices: of one CT series, as ``source_slices`` gives them. Patient and study are theirs, as DICOM demands.
        mask: (X, Y, Z) of integers; ``k`` is segment ``labels[k - 1]``, 0 is background. All 0 is allowed: every slice
            is then written empty, because the standard has no segmentation without frames.
        affine: (4, 4) of the mask, to mm in RAS, as ``read_series`` gives it for the same files.
        labels: names of the segments.
        producer: the bundle that drew the mask.

    Raises:
        DataError: the mask does not lie on the series' grid, has further values, or highdicom refuses the slices.
    """
    _check_grid(slices, mask, affine)
    if mask.max() > len(labels):
        raise DataError(f"the mask holds the value {mask.max()}, but names only {', '.join(labels)}; export it again")
    first = slices[0]
    try:
        return hd.seg.Segmentation(
            source_images=list(slices),
            pixel_array=np.ascontiguousarray(mask.transpose(2, 1, 0)).astype(np.uint8),
            segmentation_type=hd.seg.SegmentationTypeValues.BINARY,
            segment_descriptions=[_segment(k, name, producer) for k, name in enumerate(labels, start=1)],
            omit_empty_frames=bool(mask.any()),
            series_instance_uid=hd.UID(),
            series_number=SERIES_OFFSET + int(first.get("SeriesNumber") or 0),
            series_description=f"{', '.join(labels)} ({producer.name} {producer.version})"[:64],
            sop_instance_uid=hd.UID(),
            instance_number=1,
            manufacturer="FedMed",
            manufacturer_model_name=producer.name[:64],
            software_versions=producer.version[:64],
            device_serial_number=producer.weights[:64],
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"series {first.SeriesInstanceUID}: no segmentation can refer to these slices ({error})"
        ) from error


def _segment(number: int, label: str, producer: Producer) -> hd.seg.SegmentDescription:
    category, kind, place = CODES.get(label, UNKNOWN)
    return hd.seg.SegmentDescription(
        segment_number=number,
        segment_label=label,
        segmented_property_category=category,
        segmented_property_type=kind,
        algorithm_type=hd.seg.SegmentAlgorithmTypeValues.AUTOMATIC,
        algorithm_identification=hd.AlgorithmIdentificationSequence(
            name=producer.name, version=producer.version, family=codes.DCM.ArtificialIntelligence
        ),
        anatomic_regions=[place] if place else None,
    )


def _slice(path: Path) -> Dataset:
    """A slice's header with the attributes that a segmentation copies from it."""
    head = read_header(path)
    missing = [name for name in NEEDED if not head.get(name)]
    if missing:
        raise DataError(f"{path} has no {', '.join(missing)}; a segmentation refers to it. Export the series again")
    for name in MAY_BE_EMPTY:
        if name not in head:
            setattr(head, name, "")
    if head.PatientSex not in ("M", "F", "O"):
        head.PatientSex = ""  # the standard's word for unknown
    return head


def _check_grid(slices: Sequence[Dataset], mask: np.ndarray, affine: np.ndarray) -> None:
    """Each slice of the mask must lie where its DICOM file says; pydicom reads it, ITK made the affine."""
    shape = (slices[0].Columns, slices[0].Rows, len(slices))
    if mask.shape != shape:
        raise DataError(f"the mask has shape {mask.shape}, the series {shape}; infer the series itself")
    for z, head in enumerate(slices):
        along_x, along_y = np.reshape(head.ImageOrientationPatient, (2, 3)).astype(float)
        far = along_x * (shape[0] - 1) * head.PixelSpacing[1] + along_y * (shape[1] - 1) * head.PixelSpacing[0]
        position = np.asarray(head.ImagePositionPatient, dtype=float)
        for corner, expected in (((0, 0, z, 1), position), ((shape[0] - 1, shape[1] - 1, z, 1), position + far)):
            away = np.linalg.norm((affine @ corner)[:3] * (-1, -1, 1) - expected)
            if away > GRID_TOLERANCE:
                raise DataError(f"slice {z + 1} of the mask lies {away:.3g} mm away from {head.SOPInstanceUID}")
