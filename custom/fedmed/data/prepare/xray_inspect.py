"""Inspect one X-ray image: read it, check it, measure it. Runs in worker processes."""

from pathlib import Path
from typing import Any

import numpy as np
import pydicom
from PIL import Image, ImageOps

from fedmed.data.image_size import file_fault
from fedmed.data.patient_ids import folded
from fedmed.data.prepare.case import Source, XrayCase, content_hash, pseudonym
from fedmed.data.prepare.dicom_headers import quiet
from fedmed.data.prepare.folder import file_kind
from fedmed.data.prepare.xray_view import TAKEN, WantedViews, view_of
from fedmed.errors import DataError, first_line

MODALITIES = ("CR", "DX")  # computed and digital radiography
MIN_SIDE = 32  # pixels; a smaller image is a thumbnail
COLOURED = 25  # of 255: a pixel whose channels differ by more is coloured
MAX_COLOURED = 0.05  # share of coloured pixels; coloured marks on an X-ray are fewer, those of a photograph are more


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
        _measure(_pixels(header) if header else _read_picture(path), case)
    except DataError as error:
        case.faults.append(str(error))
    except OSError as error:
        case.faults.append(f"unreadable ({error.strerror or error})")
    except MemoryError:
        case.faults.append("does not fit into memory; prepare with fewer workers")
    return case


def _measure(values: np.ndarray, case: XrayCase) -> None:
    """Set size, range, content and what is wrong with grey values (H, W)."""
    rows, columns = case.shape = values.shape
    if min(values.shape) < MIN_SIDE:
        raise DataError(f"{columns}×{rows} pixels: a thumbnail; at least {MIN_SIDE} are needed")
    case.low, case.high = int(values.min()), int(values.max())
    if case.low == case.high:
        raise DataError(f"empty: every pixel is {case.low}")
    if len(np.unique(values)) < 32:
        case.notes.append("fewer than 32 grey levels: a mask, or a poor export?")
    if max(values.shape) > 2 * min(values.shape):
        case.notes.append("one side is more than twice the other: an image of the full spine, or a strip?")
    case.content = content_hash(values)


def _read_picture(path: Path) -> np.ndarray:
    """Grey values (H, W) of a PNG or JPEG, upright."""
    try:
        with Image.open(path, formats=("PNG", "JPEG", "MPO")) as file:
            file.load()
            image = ImageOps.exif_transpose(file)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise DataError(f"damaged ({first_line(error).replace(str(path), 'the file')})") from error
    if image.mode.startswith(("I", "F")):
        return np.asarray(image).astype(np.int32)
    if image.mode in ("1", "L"):
        return np.asarray(image.convert("L")).astype(np.int32)
    if image.has_transparency_data:  # training sees such pixels black
        image = Image.alpha_composite(Image.new("RGBA", image.size, "black"), image.convert("RGBA"))
    elif image.mode == "RGB" and _is_deep(path) and np.asarray(image).max() < 16:
        raise DataError("16 bits a colour, the upper 8, which are read, nearly empty; export it grey")
    coloured = _coloured(np.asarray(image.convert("RGB")))
    if coloured > MAX_COLOURED:
        raise DataError(f"a colour photograph: {coloured:.0%} of the pixels show a colour")
    return np.asarray(image.convert("L")).astype(np.int32)


def _is_deep(path: Path) -> bool:
    """Whether a PNG states 16 bits a colour."""
    with path.open("rb") as stream:
        head = stream.read(25)
    return head.startswith(b"\x89PNG") and head[24] == 16


def _coloured(rgb: np.ndarray) -> float:
    """Share of pixels (H, W, 3) that show a colour, row by row: differences take more memory than the picture."""
    return float(np.mean([(np.ptp(row.astype(np.int32), axis=-1) > COLOURED).mean() for row in rgb]))


def _read_header(source: Source, case: XrayCase) -> Any:
    """The header of a single radiograph; fills in what it says."""
    try:
        with quiet():
            header = pydicom.dcmread(case.found, force=True)
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
        _check_header(header, case)
    return header


def _check_header(header: Any, case: XrayCase) -> None:
    """Refuse what is not a single radiograph."""
    if case.modality not in MODALITIES:
        raise DataError(f"DICOM modality is {case.modality or 'not given'}, not {' or '.join(MODALITIES)}")
    if "PixelData" not in header:
        raise DataError("DICOM without an image, or cut short")
    if int(header.get("NumberOfFrames") or 1) != 1:
        raise DataError(f"DICOM of {header.NumberOfFrames} frames; one radiograph a file is needed")
    if int(header.get("SamplesPerPixel") or 1) != 1:
        raise DataError(f"DICOM in colour ({header.get('PhotometricInterpretation')})")


def _pixels(header: Any) -> np.ndarray:
    if getattr(getattr(header, "file_meta", None), "TransferSyntaxUID", None) is None:
        header.ensure_file_meta()  # an old file without the header's first part
        header.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2"
    try:
        with quiet():
            return np.asarray(header.pixel_array).astype(np.int32)
    except Exception as error:  # noqa: BLE001 - each decoder has its own exceptions
        raise DataError(f"DICOM pixels cannot be read ({first_line(error)}); export it uncompressed") from error
