"""Write a synthetic radiograph in the formats of institutions: DICOM of two kinds, 16-bit PNG, 8-bit JPEG."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import (
    UID,
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    ExplicitVRLittleEndian,
)


@dataclass(frozen=True)
class Header:
    """Facts for an image's DICOM header: ``number`` of the patient's images, ``pixel`` in mm, position PA or AP."""

    patient: str
    number: int
    uid: int
    pixel: float
    position: str


def save(image: np.ndarray, folder: Path, name: str, kind: str, header: Header) -> str:
    """Write an image (H, W), float32, 0 (dark) … 1 (bright), as one of ``KINDS``; return its path below ``folder``."""
    suffix, write = KINDS[kind]
    relative = f"images/{name}{suffix}"
    path = folder / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    write(image, path, header)
    return relative


def _png(image: np.ndarray, path: Path, header: Header) -> None:
    """16 bits, of which a detector of 12 bits uses the upper 12."""
    Image.fromarray((_integers(image, 4095) << 4).astype(np.uint16)).save(path, compress_level=1)


def _jpeg(image: np.ndarray, path: Path, header: Header) -> None:
    Image.fromarray(_integers(image, 255).astype(np.uint8)).save(path, quality=88)


def _dx(image: np.ndarray, path: Path, header: Header) -> None:
    """A digital detector: 14 bits, bright is dense, to be shown through the window that the header names."""
    stored = 1200 + _integers(image, 11000)
    dataset = _dicom(stored, header, DigitalXRayImageStorageForPresentation, "DX", "MONOCHROME2", 14)
    dataset.PresentationIntentType = "FOR PRESENTATION"
    dataset.WindowCenter, dataset.WindowWidth = 6700, 11000
    dataset.save_as(path, enforce_file_format=True)


def _cr(image: np.ndarray, path: Path, header: Header) -> None:
    """A storage phosphor plate: 12 bits, and dense is dark as on film."""
    stored = 4095 - _integers(image, 4095)
    dataset = _dicom(stored, header, ComputedRadiographyImageStorage, "CR", "MONOCHROME1", 12)
    dataset.save_as(path, enforce_file_format=True)


KINDS: Mapping[str, tuple[str, Callable[[np.ndarray, Path, Header], None]]] = {
    "png": (".png", _png),
    "jpeg": (".jpg", _jpeg),
    "dx": (".dcm", _dx),
    "cr": (".dcm", _cr),
}


def _integers(image: np.ndarray, top: int) -> np.ndarray:
    return np.rint(image * np.float32(top)).astype(np.int32)


def _dicom(stored: np.ndarray, header: Header, sop: UID, modality: str, kind: str, bits: int) -> Dataset:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = sop
    meta.MediaStorageSOPInstanceUID = UID(f"2.25.{header.uid}")  # the root of UIDs that are made from a number
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    dataset.SOPClassUID, dataset.SOPInstanceUID = sop, meta.MediaStorageSOPInstanceUID
    dataset.StudyInstanceUID = dataset.SeriesInstanceUID = UID(f"{meta.MediaStorageSOPInstanceUID}1")
    dataset.Modality, dataset.BodyPartExamined, dataset.ViewPosition = modality, "CHEST", header.position
    dataset.PatientID = dataset.PatientName = header.patient
    dataset.InstanceNumber = header.number + 1
    dataset.PhotometricInterpretation, dataset.SamplesPerPixel = kind, 1
    dataset.Rows, dataset.Columns = stored.shape
    dataset.ImagerPixelSpacing = [round(header.pixel, 4)] * 2
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, bits, bits - 1, 0
    dataset.PixelData = stored.astype("<u2").tobytes()
    dataset["PixelData"].VR = "OW"
    return dataset
