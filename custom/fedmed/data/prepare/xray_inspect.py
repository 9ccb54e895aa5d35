"""Inspect one X-ray image: read it as training does, check it, measure it. Runs in worker processes."""

import importlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pydicom

from fedmed.data.image_size import file_fault
from fedmed.data.patient_ids import folded
from fedmed.data.prepare.case import Source, XrayCase, content_hash, pseudonym
from fedmed.data.prepare.dicom_headers import quiet
from fedmed.data.prepare.folder import file_kind
from fedmed.data.prepare.xray_view import TAKEN, WantedViews, view_of
from fedmed.errors import DataError, first_line
from fedmed.files import CHECKOUT, folders_of

MODALITIES = ("CR", "DX")  # computed and digital radiography
MIN_SIDE = 32  # pixels; a smaller image is a thumbnail
BUNDLE, READER = "cxr_classification", "cxr_classifier/readers.py"  # which trains on radiographs


def inspect_xray(source: Source, wanted: WantedViews = TAKEN) -> XrayCase:
    """Check and measure one image. Never raises for bad data: the returned case lists the faults."""
    (path,) = source.files
    view = source.view.upper()
    case = XrayCase(source.case, source.patient or source.case, path, path, label=source.label, view=view)
    case.patient_said = source.patient_said
    if source.fault:
        case.faults.append(source.fault)
        return case
    try:
        if fault := file_fault(path):
            raise DataError(fault)
        case.kind = file_kind(path) or ""
        if not case.kind:
            raise DataError("not a PNG, JPEG or DICOM file, or damaged at its start")
        header = _read_header(source, case) if case.kind == "DICOM" else {}
        if fault := wanted.fault(case.view, str(header.get("BodyPartExamined") or "")):
            raise DataError(f"{fault}; --view and --body-part say what to take")
        _measure(_stored(path), case)
    except DataError as error:
        case.faults.append(str(error))
    except OSError as error:
        case.faults.append(f"unreadable ({error.strerror or error})")
    except MemoryError:
        case.faults.append("does not fit into memory; prepare with fewer workers")
    return case


def _stored(path: Path) -> np.ndarray:
    """Stored grey values (H, W) of an image that training will read; DataError with the reason if it would not."""
    read, refusal = _reader()
    try:
        return read(path)[0]
    except refusal as error:
        if isinstance(error.__cause__, MemoryError):
            raise error.__cause__ from None
        raise DataError(str(error).replace(str(path), "").lstrip(": ")) from error


@cache
def _reader() -> tuple[Callable[[Path], tuple[np.ndarray, np.ndarray]], type[Exception]]:
    """The bundle's function that reads an image, and the error with which it refuses one."""
    folders = [folder / BUNDLE for folder in (*folders_of("bundles", "FEDMED_BUNDLES"), CHECKOUT / "bundles")]
    root = next((folder for folder in folders if (folder / READER).is_file()), None)
    if root is None:
        raise DataError(f"the bundle '{BUNDLE}', whose reader is needed, is not in {folders[-1]}; install it there")
    if str(root) not in sys.path:  # a bundle stands alone: its package is imported from its own folder
        sys.path.insert(0, str(root))
    readers = importlib.import_module("cxr_classifier.readers")
    return readers.read_stored, importlib.import_module("cxr_classifier.errors").BundleInputError


def _measure(values: np.ndarray, case: XrayCase) -> None:
    """Set size, range, content and what is wrong with grey values (H, W)."""
    rows, columns = case.shape = values.shape
    if min(values.shape) < MIN_SIDE:
        raise DataError(f"{columns}×{rows} pixels: a thumbnail; at least {MIN_SIDE} are needed")
    case.low, case.high = int(values.min()), int(values.max())
    if len(np.unique(values)) < 32:
        case.notes.append("fewer than 32 grey levels: a mask, or a poor export?")
    if max(values.shape) > 2 * min(values.shape):
        case.notes.append("one side is more than twice the other: an image of the full spine, or a strip?")
    case.content = content_hash(values)


def _read_header(source: Source, case: XrayCase) -> Any:
    """The header of a single radiograph; fills in what it says."""
    try:
        with quiet():
            header = pydicom.dcmread(case.found, force=True, stop_before_pixels=True)
    except Exception as error:  # noqa: BLE001 - a damaged file makes pydicom fail in many ways
        raise DataError(f"damaged DICOM ({first_line(error)})") from error
    with quiet():
        case.modality, case.view = str(header.get("Modality") or ""), case.view or view_of(header)
        if source.patient is None:
            patient = str(header.get("PatientID") or "")
            case.patient, case.patient_key = pseudonym(patient) or source.case, folded(patient)
            case.patient_said = case.patient != source.case
            if not case.patient_said:
                case.notes.append("no PatientID; counted as a separate patient")
    if case.modality and case.modality not in MODALITIES:
        raise DataError(f"DICOM modality is {case.modality}, not {' or '.join(MODALITIES)}")
    return header
