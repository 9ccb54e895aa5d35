"""Read a chest X-ray from DICOM. pydicom is imported only for a DICOM file."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from cxr_classifier.errors import BundleInputError
from cxr_classifier.intensity import stretch
from cxr_classifier.pictures import COLOURED, LARGEST, MAX_COLOURED

MODALITIES = ("CR", "DX")  # computed and digital radiography
PHOTOMETRIC = ("MONOCHROME1", "MONOCHROME2", "PALETTE COLOR")
FAR = 1e9  # beyond every stored value: a window maps it to the end of its range


def read_dicom(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read a radiograph as its file defines its display.

    Modality LUT or rescale, then the VOI LUT or the first window that shows something, then MONOCHROME1 is inverted.
    Without a window the values are stretched (:func:`cxr_classifier.intensity.stretch`; padding pixels do not count). A
    palette of greys is applied instead of all this.

    Returns:
        The stored values (H, W), and the image (H, W), float32 in [0, 1].

    Raises:
        BundleInputError: not a readable DICOM image, another modality than CR or DX, colour, several frames, or a
            compression that no installed decoder reads.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom warns of every unusual value of a header
        try:
            return _read(path)
        except BundleInputError:
            raise
        except Exception as error:  # noqa: BLE001 - a damaged header makes pydicom fail in many ways
            raise BundleInputError(f"{path} is damaged DICOM ({_reason(error)}); export it again") from error


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    header = _header(path)
    _check(header, path)
    stored = _pixels(header, path)
    if header.PhotometricInterpretation == "PALETTE COLOR":
        return stored, _grey_palette(stored, header, path)
    shown = _shown(stored, header, path)
    return stored, 1 - shown if header.PhotometricInterpretation == "MONOCHROME1" else shown


def _header(path: Path) -> Any:
    try:
        import pydicom
    except ImportError as error:
        raise BundleInputError(
            f"{path} is DICOM, which needs pydicom: pip install 'fedmed[dicom]', or pydicom alone"
        ) from error
    return pydicom.dcmread(path, force=True)


def _check(header: Any, path: Path) -> None:
    """Refuse what is not a single grey radiograph."""
    if "PixelData" not in header:
        what = (
            "is not a DICOM file" if "SOPClassUID" not in header else "is a DICOM file without an image, or cut short"
        )
        raise BundleInputError(f"{path} {what}; export it again or remove it")
    modality = str(header.get("Modality") or "not given")
    if modality not in MODALITIES:
        raise BundleInputError(
            f"{path}: the modality is {modality}; chest radiographs ({' or '.join(MODALITIES)}) are needed, remove it"
        )
    frames = int(header.get("NumberOfFrames") or 1)
    if frames != 1:
        raise BundleInputError(f"{path} has {frames} frames; save the radiograph to use as a separate file")
    if (pixels := int(header.get("Rows") or 0) * int(header.get("Columns") or 0)) > LARGEST:
        raise BundleInputError(f"{path} has {pixels} pixels; export it smaller")
    photometric = str(header.get("PhotometricInterpretation") or "not given")
    if photometric not in PHOTOMETRIC or int(header.get("SamplesPerPixel") or 1) != 1:
        raise BundleInputError(f"{path} is a colour image ({photometric}); export the grey original")


def _pixels(header: Any, path: Path) -> np.ndarray:
    """Stored values (H, W)."""
    syntax = getattr(getattr(header, "file_meta", None), "TransferSyntaxUID", None)
    if syntax is None:  # an old file without the header's first part
        header.ensure_file_meta()
        header.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2"
        syntax = header.file_meta.TransferSyntaxUID
    try:
        return header.pixel_array
    except Exception as error:  # noqa: BLE001 - each decoder has its own exceptions
        if syntax.is_compressed and isinstance(error, (RuntimeError, NotImplementedError, AttributeError)):
            raise BundleInputError(
                f"{path} is compressed ({syntax.name}) and no decoder for that is installed, or it is damaged; "
                "pip install python-gdcm, or export it uncompressed"
            ) from error
        raise BundleInputError(f"{path}: the image is damaged ({_reason(error)}); export it again") from error


def _shown(stored: np.ndarray, header: Any, path: Path) -> np.ndarray:
    """Values (H, W) in [0, 1] after the modality LUT and the VOI LUT or window."""
    modality_lut, voi_lut, _ = _lookups()
    try:
        for table in header.get("ModalityLUTSequence") or ():
            _unpack_bytes(table)
        values = modality_lut(stored, header).astype(np.float64)
        if not header.get("VOILUTSequence") and not _windows(header):
            return stretch(values, _counted(stored, header))
        if header.get("VOILUTSequence"):
            _unpack_bytes(header.VOILUTSequence[0])
            bits = int(header.VOILUTSequence[0].LUTDescriptor[2])
            low, high = 0.0, 2.0**bits - 1
            shown = voi_lut(values.round().astype(np.int64), header)
        else:
            shown, low, high = _windowed(values, header, voi_lut)
    except Exception as error:  # noqa: BLE001 - malformed look-up tables make pydicom fail in many ways
        raise BundleInputError(
            f"{path}: its look-up table or window is unusable ({_reason(error)}); export it again"
        ) from error
    return np.clip((shown - low) / (high - low), 0, 1).astype(np.float32)


def _windowed(values: np.ndarray, header: Any, voi_lut: Any) -> tuple[np.ndarray, float, float]:
    """Values after the first window in which not all are equal, and what that maps the ends of its range to."""
    for index in _windows(header):
        with np.errstate(over="ignore"):  # a sigmoid window far from its centre
            shown, (low, high) = (voi_lut(given, header, index=index) for given in (values, np.array([-FAR, FAR])))
        if shown.max() > shown.min() or values.max() == values.min():
            return shown, low, high
    raise ValueError("no window shows anything of the image")


def _counted(stored: np.ndarray, header: Any) -> np.ndarray | None:
    """Pixels of the image: those outside the padding value, or the range of such values; None = all."""
    padding, limit = header.get("PixelPaddingValue"), header.get("PixelPaddingRangeLimit")
    if padding is None:
        return None
    low, high = sorted((int(padding), int(padding if limit is None else limit)))
    return (stored < low) | (stored > high)


def _unpack_bytes(table: Any) -> None:
    """Widen a look-up table of 8 bits that is stored a byte an entry: pydicom reads two."""
    data, count = table.LUTData, int(table.LUTDescriptor[0]) or 2**16
    if isinstance(data, bytes) and int(table.LUTDescriptor[2]) == 8 and len(data) in (count, count + 1):
        table.LUTData = np.frombuffer(data[:count], np.uint8).astype("<u2").tobytes()


def _grey_palette(stored: np.ndarray, header: Any, path: Path) -> np.ndarray:
    """Values (H, W) in [0, 1] of stored values that stand for greys of a palette."""
    colours = _lookups()[2](stored, header)[..., :3]
    shown = colours.astype(np.float32) / np.iinfo(colours.dtype).max
    if (np.ptp(shown, axis=-1) > COLOURED / 255).mean() > MAX_COLOURED:
        raise BundleInputError(f"{path} is a colour image (PALETTE COLOR); export the grey original")
    return shown @ np.array([0.299, 0.587, 0.114], dtype=np.float32)


def _windows(header: Any) -> list[int]:
    """Places of the windows that have a centre and a width above 1."""
    centres, widths = (_numbers(header.get(name)) for name in ("WindowCenter", "WindowWidth"))
    return [index for index, (_, width) in enumerate(zip(centres, widths, strict=False)) if width > 1]


def _numbers(value: Any) -> list[float]:
    """One number or several of a header; none where it is empty."""
    if value is None or str(value) == "":
        return []
    several = hasattr(value, "__len__") and not isinstance(value, str)
    return [float(one) for one in (value if several else [value])]


def _lookups() -> tuple[Any, Any, Any]:
    try:
        from pydicom.pixels import apply_color_lut, apply_modality_lut, apply_voi_lut
    except ImportError:  # pydicom 2, which MONAI Label has
        from pydicom.pixel_data_handlers.util import apply_color_lut, apply_modality_lut, apply_voi_lut
    return apply_modality_lut, apply_voi_lut, apply_color_lut


def _reason(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
