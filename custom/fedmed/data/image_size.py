"""Size of an image by its header and its file, before a value of it is unpacked; and whether it may be read.

A file of a kilobyte can state any size, and one of some megabytes can unpack to that. So everything that opens an image
of a site (preparation, check, cache, inference, corrections of labels) asks first. Nothing here unpacks into memory.
"""

import gzip
import math
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import nibabel as nib
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import HeaderDataError
from nibabel.wrapstruct import WrapStructError
from PIL import Image

from fedmed.data.dicom_start import dicom_fault, is_dicom
from fedmed.data.read_limits import GB, MOST, allowed_bytes, file_bytes, most_bytes
from fedmed.errors import DataError, first_line

PIXELS = 89_478_485  # of a picture or radiograph: Pillow's own limit, six times those of the largest detectors
NIFTI_2 = 540  # bytes of its header, and the number with which it begins
COPY_BYTES = 8  # bytes a voxel beside the value as it is read: the float32 copies of a reader
PICTURE_BYTES = 20  # a pixel: colours as stored and turned upright, grey values, their copies
BEFORE_VOXELS = 2**26  # bytes of NIfTI's extensions, which are read with the header
DENSEST = 1032  # bytes that deflate makes of one, at most
ODD_DENSITY = 20  # beyond it a packed file is counted before it is read; a scan has 2 to 4, an empty mask hundreds
CHUNK = 2**20
# What nibabel raises of a damaged file.
UNREADABLE = (OSError, EOFError, ValueError, zlib.error, ImageFileError, HeaderDataError, WrapStructError)
NIFTI, DICOM = (".nii", ".nii.gz"), (".dcm", ".dicom", ".ima")
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".gif", ".webp")


@dataclass(frozen=True)
class StatedSize:
    """Size that a header states."""

    shape: tuple[int, ...]  # voxels along the axes, or rows and columns
    needed: int  # bytes of memory that reading takes
    picture: bool = False  # whether it is a single picture


def volume(shape: Sequence[int], value_bytes: int) -> StatedSize:
    """The size of a volume whose values take ``value_bytes`` each once they are read."""
    return StatedSize(tuple(shape), math.prod(shape) * (value_bytes + COPY_BYTES))


def picture(rows: int, columns: int) -> StatedSize:
    """The size of a picture."""
    return StatedSize((rows, columns), rows * columns * PICTURE_BYTES, picture=True)


def size_fault(stated: StatedSize) -> str:
    """Say why an image is too large for :func:`allowed_bytes`, and what to do; "" for one that fits."""
    shown = "×".join(map(str, stated.shape))
    if stated.picture and math.prod(stated.shape) > PIXELS:
        return f"does not fit into memory: {shown} pixels, and a picture has at most {PIXELS}; export it smaller"
    needed, most = stated.needed / GB, most_bytes()
    if stated.needed > most:
        what = f"does not fit into memory: {shown} values take {needed:.3g} GB to read, more than {most / GB:.3g} GB"
        return f"{what}; crop it or save it coarser, or set ${MOST} higher if it is really so large"
    if stated.needed > (allowed := allowed_bytes()):
        what = f"does not fit into memory: {shown} values take {needed:.3g} GB to read, and {allowed / GB:.3g} GB are"
        return f"{what} free for one process; use --workers 1, or free some memory"
    return ""


def file_fault(path: Path) -> str:
    """The same of a file, by what it is; also why its header cannot be true. "" too where only its reader can say it.

    NIfTI, DICOM and pictures are judged by their headers, others by their own size.

    Raises:
        DataError: not a regular file.
    """
    try:
        size = file_bytes(path)
        name = path.name.lower()
        if name.endswith(NIFTI):
            return nifti_fault(path)
        with path.open("rb") as file:
            head = file.read(132)
    except OSError:
        return ""  # whoever reads it says so
    if is_dicom(head) or name.endswith(DICOM):  # slices of a volume are counted together by who reads them
        from fedmed.data.prepare.dicom_headers import read_header  # pydicom takes a while to load

        try:
            return dicom_fault(path) or dicom_size_fault(read_header(path))
        except DataError:
            return ""
    if name.endswith(PICTURES):
        return _picture_fault(path)
    return size_fault(StatedSize((size,), size))


def require_fits(path: Path) -> None:
    """Raise DataError, which names the file, where :func:`file_fault` finds something."""
    if fault := file_fault(path):
        raise DataError(f"{path}: {fault}")


def nifti_fault(path: Path) -> str:
    """Say why a NIfTI file is too large, or that it holds less than its header states; "" for one that may be read."""
    try:
        header = nifti_header(path)
        before = float(header["vox_offset"])
        if not before <= BEFORE_VOXELS:
            return f"is unreadable (its header states {before:.3g} bytes before the first voxel); save it again"
        shape = tuple(int(length) for length in header.get_data_shape())
        value_bytes, scaling = header.get_data_dtype().itemsize, header.get_slope_inter()
    except (*UNREADABLE, KeyError):  # KeyError: the header states a data type that there is not; its reader says so
        return ""
    scaled = scaling not in ((None, None), (1, 0))
    fault = size_fault(volume(shape, 8 if scaled else value_bytes))
    return fault or _not_held(path, int(max(0.0, before)), math.prod(shape) * value_bytes)


def nifti_header(path: Path) -> nib.Nifti1Header:
    """The header without what may follow it, which can be as long as it states."""
    with nib.openers.ImageOpener(str(path)) as file:
        start = file.read(NIFTI_2)
    second = NIFTI_2 in (int.from_bytes(start[:4], order) for order in ("little", "big"))
    kind = nib.Nifti2Header if second else nib.Nifti1Header
    return kind(start[: kind.sizeof_hdr], check=False)


def _not_held(path: Path, before: int, stated: int) -> str:
    """Fault of a NIfTI file with fewer bytes than its header states; a packed one is unpacked to count if it is odd."""
    size = path.stat().st_size
    packed = path.name.lower().endswith(".gz")
    held = size * (DENSEST if packed else 1)
    if held >= before + stated and packed and stated > ODD_DENSITY * size:
        held = _unpacked(path, before + stated)
    if held >= before + stated:
        return ""
    return f"is unreadable (its header states {stated} bytes of voxels, and it holds at most {held}); restore the file"


def _unpacked(path: Path, most: int) -> int:
    """Bytes that a packed file unpacks to, counted piece by piece up to ``most``."""
    count = 0
    try:
        with gzip.open(path) as file:
            while count < most and (piece := len(file.read(CHUNK))):
                count += piece
    except (OSError, EOFError, zlib.error):
        pass  # damaged: what came before is all that there is
    return count


@contextmanager
def opened_picture(source: Path | IO[bytes]) -> Iterator[Image.Image]:
    """A picture that may be decoded, of which nothing is decoded yet.

    Raises:
        DataError: not a regular file, or too large; it names the file.
        OSError, SyntaxError, ValueError: as Pillow, for a damaged one.
    """
    name = f"{source}: " if isinstance(source, Path) else ""
    if isinstance(source, Path):
        file_bytes(source)
    try:
        with warnings.catch_warnings():  # Pillow's own limit is twice ours, and it only warns of ours
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(source) as image:
                if fault := size_fault(picture(image.height, image.width)):
                    raise DataError(f"{name}{fault}")
                yield image
    except Image.DecompressionBombError as error:
        raise DataError(f"{name}does not fit into memory ({first_line(error)}); export it smaller") from error


def opened_nifti(path: Path) -> nib.Nifti1Image:
    """A NIfTI image whose values may be read.

    Raises:
        DataError: not a regular file, or :func:`nifti_fault` finds something; it names the file.
        nibabel's errors: see ``UNREADABLE``.
    """
    file_bytes(path)
    if fault := nifti_fault(path):
        raise DataError(f"{path.name} {fault}")
    return cast(nib.Nifti1Image, nib.load(path))


def _picture_fault(path: Path) -> str:
    try:
        with opened_picture(path):
            return ""
    except DataError as error:
        return str(error).removeprefix(f"{path}: ")
    except (OSError, ValueError, SyntaxError, EOFError):
        return ""


def dicom_size_fault(header: object, files: int = 1) -> str:
    """:func:`size_fault` of what a DICOM header (a pydicom ``Dataset``) describes, ``files`` of it together."""
    sides = [_whole(header, name) for name in ("Rows", "Columns")]
    count = files * max(1, _whole(header, "NumberOfFrames")) * max(1, _whole(header, "SamplesPerPixel"))
    return size_fault(volume((*sides, count), 8) if count > 1 else picture(*sides))


def _whole(header: object, name: str) -> int:
    try:
        return int(getattr(header, name, None) or 0)
    except (TypeError, ValueError):
        return 0  # its reader says so
