"""Read a chest X-ray from any supported file as an image in [0, 1] in which bone is bright."""

from pathlib import Path

import numpy as np

from cxr_classifier.dicom import read_dicom
from cxr_classifier.errors import BundleInputError
from cxr_classifier.pictures import read_picture

PNG, JPEG, DICOM = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"DICM"
DICOM_OFFSET = 128
DICOM_ENDINGS = (".dcm", ".dicom", ".ima")
# DICOM without its preamble begins with one of the first elements of group 2 or 8, which are short: (0008,0016), say.
FIRST_GROUPS, LAST_FIRST, LONGEST_FIRST = (b"\x02\x00", b"\x08\x00"), 0x20, 256
MIN_SIDE = 8  # pixels; anything smaller is an icon or a broken export


def read_xray(path: str | Path) -> np.ndarray:
    """Read one image: DICOM (CR, DX), PNG (8 or 16 bit) or JPEG, recognised by its first bytes, not by its name.

    Returns:
        (H, W) float32 in [0, 1], H rows from the top, W columns from the left; larger is brighter, also where the file
        says that smaller is brighter (MONOCHROME1).

    Raises:
        BundleInputError: missing, empty, damaged or of another format; a colour photograph; compressed in a way that
            cannot be read here; another modality, several frames; smaller than 8 pixels; all pixels equal. Names the
            file and what to do.
    """
    return read_stored(path)[1]


def read_stored(path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Read one image as :func:`read_xray` does, decoding it once.

    Returns:
        Its grey values as stored (H, W), and the image (H, W) in [0, 1].

    Raises:
        BundleInputError: as :func:`read_xray`.
    """
    path = Path(path)
    kind = file_kind(path)
    if kind is None:
        raise BundleInputError(f"{path} is not a DICOM, PNG or JPEG file; convert it, or leave it out")
    stored, image = read_dicom(path) if kind == "DICOM" else read_picture(path)
    if min(image.shape) < MIN_SIDE:
        raise BundleInputError(f"{path} has {image.shape[0]} x {image.shape[1]} pixels; export the image in full size")
    if not np.isfinite(image).all():
        raise BundleInputError(f"{path} holds values that are not finite; export the image again")
    if image.max() <= image.min():
        raise BundleInputError(f"{path}: all pixels are equal; export the image again or remove it")
    return stored, image


def file_kind(path: Path) -> str | None:
    """``DICOM``, ``PNG``, ``JPEG``, or None; DICOM that begins in an odd way needs the ending .dcm, .dicom or .ima.

    Raises:
        BundleInputError: no such file, not readable, or empty.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(DICOM_OFFSET + len(DICOM))
    except OSError as error:
        raise BundleInputError(f"{path} cannot be read ({error.strerror}); restore it or correct the path") from error
    if not head:
        raise BundleInputError(f"{path} is an empty file; copy or export it again")
    if head.startswith(PNG):
        return "PNG"
    if head.startswith(JPEG):
        return "JPEG"
    marked = head[DICOM_OFFSET:] == DICOM or _begins_as_dicom(head)
    return "DICOM" if marked or path.suffix.lower() in DICOM_ENDINGS else None


def _begins_as_dicom(head: bytes) -> bool:
    element, length = (int.from_bytes(head[place], "little") for place in (slice(2, 4), slice(4, 8)))
    typed = head[4:6].isalpha() and head[4:6].isupper()
    return head[:2] in FIRST_GROUPS and element <= LAST_FIRST and len(head) > 8 and (typed or length <= LONGEST_FIRST)
