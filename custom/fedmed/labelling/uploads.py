"""Images and masks that clients send to the label server: opened as what they say they are, before they are kept.

Everything is judged piece by piece: by the header, then by the file, and against the memory that is free, before
anything is unpacked into memory.
"""

import gzip
import math
import zlib
from pathlib import Path
from typing import IO

import psutil
from PIL import Image, UnidentifiedImageError

from fedmed.data.dicom_start import is_dicom
from fedmed.data.image_size import BEFORE_VOXELS, UNREADABLE, nifti_header
from fedmed.errors import DataError, first_line

NIFTI, NRRD = (".nii.gz", ".nii"), (".nrrd",)
PICTURES = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
LARGEST = 4 << 30  # bytes of an image's values: a CT of 512 x 512 x 4,000
COPIES = 4  # of the values that reading and preprocessing hold at a time
CHUNK = 1 << 20
NRRD_HEADER = 1 << 16
NRRD_BYTES = {
    **dict.fromkeys(("signed char", "int8", "int8_t", "uchar", "unsigned char", "uint8", "uint8_t"), 1),
    **dict.fromkeys(("short", "short int", "signed short", "signed short int", "int16", "int16_t"), 2),
    **dict.fromkeys(("ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"), 2),
    **dict.fromkeys(("int", "signed int", "int32", "int32_t", "uint", "unsigned int", "uint32", "uint32_t"), 4),
    **dict.fromkeys(("longlong", "long long", "int64", "int64_t", "ulonglong", "uint64", "uint64_t"), 8),
    "float": 4,
    "double": 8,
}


def check_upload(path: Path) -> None:
    """Check that a file is a whole NIfTI, NRRD, PNG or JPEG image that fits into memory.

    DICOM is not taken, also under another name: no viewer sends it, and its decoders are those with known faults.

    Raises:
        DataError: another kind of file, damaged, or too large.
    """
    name = path.name.lower()
    try:
        with path.open("rb") as stream:
            if is_dicom(stream.read(132)):
                raise DataError("DICOM files are not taken from clients; save it as .nii.gz")
        if name.endswith(NIFTI):
            _check_nifti(path)
        elif name.endswith(NRRD):
            _check_nrrd(path)
        elif path.suffix.lower() in PICTURES:
            _check_picture(path, PICTURES[path.suffix.lower()])
        else:
            raise DataError(f"'{path.suffix}' files are not taken; send .nii.gz, .nii, .nrrd, .png or .jpg")
    except (*UNREADABLE, UnidentifiedImageError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"it is no whole {path.suffix} image ({first_line(error)}); save it again") from error


def check_size(shape: tuple[int, ...], value_bytes: int) -> None:
    """Raise DataError for an image that is empty, or too large for this server or for the memory that is free now."""
    if not shape or min(shape) < 1:
        raise DataError(f"it has the shape {shape}; an image has voxels")
    size, free = math.prod(shape) * value_bytes, psutil.virtual_memory().available
    if size > LARGEST or size * COPIES > free:
        what = f"its values take {size / 1e9:.1f} GB; at most {min(LARGEST, free // COPIES) / 1e9:.1f} GB are read now"
        raise DataError(f"{what}; crop it, or free some memory")


def _check_nifti(path: Path) -> None:
    header = nifti_header(path)
    before, dtype = float(header["vox_offset"]), header.get_data_dtype()
    if bytes(header["magic"])[:3] not in (b"n+1", b"n+2") or not 0 <= before <= BEFORE_VOXELS:
        raise DataError("it is no NIfTI image of a single file; save it again")
    if dtype.kind not in "iuf":
        raise DataError(f"its values are of the type {dtype}; save it with plain numbers")
    shape = tuple(int(n) for n in header.get_data_shape())
    check_size(shape, max(dtype.itemsize, 4))
    _check_length(path, int(before), math.prod(shape) * dtype.itemsize)


def _check_length(path: Path, before: int, expected: int) -> None:
    """The whole file is read once, in pieces, and holds what its header says: neither less nor much more."""
    held, most = 0, before + expected + CHUNK
    with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as stream:
        while held <= most and (piece := stream.read(CHUNK)):
            held += len(piece)
    if not before + expected <= held <= most:
        raise DataError(f"its header says {expected} bytes of values, and it holds another number; save it again")


def _check_picture(path: Path, kind: str) -> None:
    with Image.open(path, formats=[kind]) as image:
        check_size((image.height, image.width, len(image.getbands())), 4)
        image.load()


def _check_nrrd(path: Path) -> None:
    """NRRD as 3D Slicer writes it. A header that names another file would have the server read that one."""
    with path.open("rb") as stream:
        head, ended, _ = stream.read(NRRD_HEADER).replace(b"\r\n", b"\n").partition(b"\n\n")
        if not head.startswith(b"NRRD000") or not ended:
            raise DataError("it is no NRRD image; save it again")
    fields = {}
    for line in head.decode("latin-1").splitlines()[1:]:
        key, colon, value = line.partition(":")
        if colon and not line.startswith("#") and not value.startswith("="):
            fields[key.strip().lower()] = value.strip()
    if {"data file", "datafile", "line skip", "lineskip", "byte skip", "byteskip"} & set(fields):
        raise DataError("its values lie in another file, or not behind the header; save it as one .nrrd file")
    sizes = tuple(int(n) for n in fields.get("sizes", "").split())
    value_bytes = NRRD_BYTES.get(fields.get("type", "").lower())
    if value_bytes is None:
        raise DataError(f"its values are of the type '{fields.get('type')}'; save it with plain numbers")
    check_size(sizes, max(value_bytes, 4))
    expected, encoding = math.prod(sizes) * value_bytes, fields.get("encoding", "").lower()
    with path.open("rb") as stream:
        body = stream.read(NRRD_HEADER)
        start = min(body.find(end) + len(end) for end in (b"\n\n", b"\r\n\r\n") if end in body)
        stream.seek(start)
        held = _count(stream, encoding, expected + CHUNK)
    if not expected <= held <= expected + CHUNK:
        raise DataError(f"its header says {expected} bytes of values, and it holds another number; save it again")


def _count(stream: IO[bytes], encoding: str, most: int) -> int:
    """Bytes that the rest of a file unpacks to, up to ``most`` and a piece."""
    if encoding not in ("raw", "gzip", "gz"):
        raise DataError(f"its encoding '{encoding}' is not taken; save it as raw or gzip")
    held, unpack = 0, zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding != "raw" else None
    while held <= most and (piece := stream.read(CHUNK)):
        while piece and held <= most:
            held += len(unpack.decompress(piece, CHUNK) if unpack else piece)
            piece = unpack.unconsumed_tail if unpack else b""
    return held
