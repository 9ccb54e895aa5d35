"""Write a made-up radiograph in the formats of institutions: DICOM of two kinds, 16-bit PNG, 8-bit JPEG."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import ComputedRadiographyImageStorage, DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

UID_ROOT = "2.25."  # UIDs made from a number, here the patient's and the image's


def save(image: np.ndarray, folder: Path, name: str, kind: str, facts: Mapping[str, object]) -> str:
    """Write one image below ``folder`` and return its path relative to it.

    Args:
        image: (H, W) float32, 0 (dark) … 1 (bright).
        folder: data root of the site.
        name: of the file, without extension.
        kind: a name in ``KINDS``.
        facts: for DICOM headers: ``patient``, ``number`` (of the image), ``uid`` (an integer), ``pixel`` (mm),
            ``position`` (PA or AP).
    """
    suffix, write = KINDS[kind]
    relative = f"images/{name}{suffix}"
    path = folder / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    write(image, path, facts)
    return relative


def _png(image: np.ndarray, path: Path, facts: Mapping[str, object]) -> None:
    """16 bits, of which a detector of 12 bits uses the upper 12."""
    Image.fromarray((_integers(image, 4095) << 4).astype(np.uint16)).save(path, compress_level=1)


def _jpeg(image: np.ndarray, path: Path, facts: Mapping[str, object]) -> None:
    Image.fromarray(_integers(image, 255).astype(np.uint8)).save(path, quality=88)


def _dx(image: np.ndarray, path: Path, facts: Mapping[str, object]) -> None:
    """A digital detector: 14 bits, bright is dense, to be shown through the window that the header names."""
    stored = 1200 + _integers(image, 11000)
    dataset = _dicom(stored, facts, DigitalXRayImageStorageForPresentation, "DX", "MONOCHROME2", 14)
    dataset.PresentationIntentType = "FOR PRESENTATION"
    dataset.WindowCenter, dataset.WindowWidth = 6700, 11000
    dataset.save_as(path, enforce_file_format=True)


def _cr(image: np.ndarray, path: Path, facts: Mapping[str, object]) -> None:
    """A storage phosphor plate: 12 bits, and dense is dark as on film."""
    stored = 4095 - _integers(image, 4095)
    dataset = _dicom(stored, facts, ComputedRadiographyImageStorage, "CR", "MONOCHROME1", 12)
    dataset.save_as(path, enforce_file_format=True)


KINDS: Mapping[str, tuple[str, Callable[[np.ndarray, Path, Mapping[str, object]], None]]] = {
    "png": (".png", _png),
    "jpeg": (".jpg", _jpeg),
    "dx": (".dcm", _dx),
    "cr": (".dcm", _cr),
}


def _integers(image: np.ndarray, top: int) -> np.ndarray:
    return np.rint(image * np.float32(top)).astype(np.int32)


def _dicom(stored: np.ndarray, facts: Mapping[str, object], sop: str, modality: str, kind: str, bits: int) -> Dataset:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = sop
    meta.MediaStorageSOPInstanceUID = f"{UID_ROOT}{facts['uid']}"
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
    dataset.SOPClassUID, dataset.SOPInstanceUID = sop, meta.MediaStorageSOPInstanceUID
    dataset.StudyInstanceUID = dataset.SeriesInstanceUID = f"{meta.MediaStorageSOPInstanceUID}1"
    dataset.Modality, dataset.BodyPartExamined, dataset.ViewPosition = modality, "CHEST", facts["position"]
    dataset.PatientID = dataset.PatientName = facts["patient"]
    dataset.InstanceNumber = int(facts["number"]) + 1
    dataset.PhotometricInterpretation, dataset.SamplesPerPixel = kind, 1
    dataset.Rows, dataset.Columns = stored.shape
    dataset.ImagerPixelSpacing = [round(float(facts["pixel"]), 4)] * 2
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, bits, bits - 1, 0
    dataset.PixelData = stored.astype("<u2").tobytes()
    dataset["PixelData"].VR = "OW"
    return dataset
